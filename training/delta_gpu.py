"""The gated delta rule on a GPU: the kernels of flash-linear-attention, less one that cannot be trusted on Hopper.

Triton 3.4 to 3.7.0 miscompiles `chunk_bwd_dqkwg` there (flash-linear-attention issue 640): gradients come out wrong
without a word. It is replaced at run time by the same sums as matrix products, which torch compiles well.
"""

import sys
from typing import Any

import torch
from torch import Tensor

_MAX_CONFIGS = 3  # to try at autotuning: starting up counts against the ten minutes


def load() -> Any:  # noqa: ANN401
    """A function with the signature of `delta.delta_rule`."""
    from fla.ops.gated_delta_rule import chunk  # noqa: PLC0415

    chunk.chunk_bwd_dqkwg = _gradients
    _prune_autotuning()

    def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        output: Tensor = chunk.chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=False)[0]
        return output

    return delta_rule


def _gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    h: Tensor,
    dh: Tensor,
    *,
    dv: Tensor,
    g: Tensor,
    **rest: Any,  # noqa: ANN401
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stands in for `chunk_bwd_dqkwg`, as far as the gated delta rule calls it."""
    scale = rest.get("scale") or k.shape[-1] ** -0.5
    found: tuple[Tensor, Tensor, Tensor, Tensor] = _compiled(
        q, k, v, do, h, dh, g, dv, float(scale), rest.get("chunk_size", 64)
    )
    return found


def _dqkwg(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, h: Tensor, dh: Tensor, g: Tensor, dv: Tensor, scale: float, chunk: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, w and decay of each chunk, from the states h at its start. g is in base 2."""
    batch, time, heads, size = q.shape
    kind = k.dtype

    def split(x: Tensor) -> Tensor:
        return x.reshape(batch, time // chunk, chunk, heads, -1).transpose(2, 3)

    def join(x: Tensor) -> Tensor:
        return x.transpose(2, 3).reshape(batch, time, heads, -1).to(kind).contiguous()

    q, k, v, do, dv = (split(x.to(kind)) for x in (q, k, v, do, dv))
    h, dh = (x.reshape(batch, time // chunk, heads, size, -1).to(kind) for x in (h, dh))
    decay = g.float().reshape(batch, time // chunk, chunk, heads).transpose(2, 3)
    last = decay[..., -1:]
    dw = -(dv @ h.mT)
    dq = (do @ h.mT).float() * torch.exp2(decay).unsqueeze(-1) * scale
    dk = (v @ dh.mT).float() * torch.exp2(last - decay).unsqueeze(-1)
    dlast = (h.float() * dh.float()).sum((-1, -2)) * torch.exp2(last[..., 0]) + (dk * k.float()).sum((-1, -2))
    seen = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    between = torch.exp2((decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(~seen, float("-inf")))
    ds = ((do @ v.mT).float() * between * scale).to(kind)
    dq, dk = dq + (ds @ k).float(), dk + (ds.mT @ q).float()
    dg = (dq * q.float()).sum(-1) - (dk * k.float()).sum(-1)
    dg = torch.cat([dg[..., :-1], dg[..., -1:] + dlast.unsqueeze(-1)], -1)
    return join(dq), join(dk), join(dw), dg.transpose(2, 3).reshape(batch, time, heads).contiguous()


_compiled = torch.compile(_dqkwg, dynamic=False)


def _prune_autotuning() -> None:
    from triton.runtime.autotuner import Autotuner  # noqa: PLC0415

    for name, module in list(sys.modules.items()):
        if name.startswith("fla.ops"):
            for kernel in filter(None, map(_autotuner, vars(module).values())):
                if isinstance(kernel, Autotuner) and len(kernel.configs) > 2 * _MAX_CONFIGS:
                    usual = [config for config in kernel.configs if config.num_warps == 4]
                    kernel.configs = (usual or kernel.configs)[:_MAX_CONFIGS]


def _autotuner(found: object) -> object:
    """The autotuner among the wrappers around a kernel."""
    for _ in range(4):
        if found is None or type(found).__name__ == "Autotuner":
            return found
        found = getattr(found, "fn", None)
    return None
