"""The gated delta rule: what a DeltaNet layer does with its queries, keys and values.

State S of each head, per token: forget by exp(g), then write the difference between the value and what the key
already finds:  S = exp(g) S;  S = S + k beta (v - S k);  output = S q.
Here in chunks, with plain torch, for any device. `delta_gpu.py` has the fast one.
"""

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK = 64


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """q, k, v [batch, time, head, size], with q and k of unit length; g, the log of the decay, and beta without size.

    Within a chunk the writes depend on each other: a triangular system. Between chunks only the state passes on.
    """
    kind, length = v.dtype, q.shape[1]
    q, k, v, g, beta = (_chunked(x) for x in (q * q.shape[-1] ** -0.5, k, v, g.unsqueeze(-1), beta.unsqueeze(-1)))
    decay = g.cumsum(-2)  # [batch, head, chunk, time, 1]
    later = torch.ones(_CHUNK, _CHUNK, dtype=torch.bool, device=q.device).triu(1)
    between = (decay - decay.mT).masked_fill(later, float("-inf")).exp()
    written = beta * k
    system = ((written @ k.mT) * between).tril(-1)
    right = torch.cat([beta * v, written * decay.exp()], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new, old = solved.split((v.shape[-1], k.shape[-1]), -1)
    scores, reading = (q @ k.mT) * between, q * decay.exp()
    last = decay[..., -1:, :]
    keys, kept = k * (last - decay).exp(), last.exp()

    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    outputs = []
    for chunk in range(q.shape[2]):
        values = new[:, :, chunk] - old[:, :, chunk] @ state
        outputs.append(reading[:, :, chunk] @ state + scores[:, :, chunk] @ values)
        state = state * kept[:, :, chunk] + keys[:, :, chunk].mT @ values
    return torch.cat(outputs, 2)[:, :, :length].transpose(1, 2).to(kind)


def _chunked(x: Tensor) -> Tensor:
    """[batch, time, head, size] to [batch, head, chunk, time in chunk, size], padded to whole chunks."""
    x = functional.pad(x.transpose(1, 2).float(), (0, 0, 0, -x.shape[1] % _CHUNK))
    return x.unflatten(2, (-1, _CHUNK))
