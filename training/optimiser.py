"""Muon for the matrices inside the layers, AdamW for embeddings, norms and the few numbers per head."""

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_PARTS = {"attn_qkv": 3}  # three matrices in one: each is orthogonalised by itself
_BY_ADAM = ("token_embd", "ssm_alpha", "ssm_beta", "ssm_conv1d")


class Optimiser:
    def __init__(
        self, model: nn.Module, muon_rate: float = 0.02, adam_rate: float = 0.003, decay: float = 0.01
    ) -> None:
        self._rest: list[nn.Parameter] = []
        self._matrices: dict[tuple[torch.Size, int], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            self._sort(name.rpartition(".")[2], parameter)
        self._momenta = {key: torch.zeros_like(torch.stack(list(group))) for key, group in self._matrices.items()}
        self._muon_rate, self._adam_rate, self._decay = muon_rate, adam_rate, decay
        is_fused = self._rest[0].is_cuda
        self._adam = torch.optim.AdamW(self._rest, adam_rate, (0.9, 0.95), 1e-10, weight_decay=0.0, fused=is_fused)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """`rate` scales both learning rates."""
        nn.utils.clip_grad_norm_(self._rest, 1.0)
        self._adam.param_groups[0]["lr"] = self._adam_rate * rate
        self._adam.step()
        for key, group in self._matrices.items():
            self._step_matrices(key, group, self._muon_rate * rate)

    def _step_matrices(self, key: tuple[torch.Size, int], group: list[nn.Parameter], rate: float) -> None:
        """All matrices of one size at once."""
        (rows, columns), parts = key
        gradient = torch.stack([_gradient(parameter) for parameter in group])
        momentum = self._momenta[key].lerp_(gradient, 1 - _MOMENTUM)
        update = gradient.lerp(momentum, _MOMENTUM).view(len(group) * parts, rows // parts, columns)
        update = orthogonal(update) * max(1.0, rows / parts / columns) ** 0.5
        update = update.view(len(group), rows, columns).to(gradient.dtype)
        torch._foreach_mul_(group, 1 - rate * self._decay)
        torch._foreach_add_(group, list(update.unbind(0)), alpha=-rate)

    def _sort(self, name: str, parameter: nn.Parameter) -> None:
        if parameter.ndim == 2 and name not in _BY_ADAM:
            self._matrices.setdefault((parameter.shape, _PARTS.get(name, 1)), []).append(parameter)
        else:
            self._rest.append(parameter)


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly, by five steps of Newton and Schulz."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if is_tall else x


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError("a parameter has no gradient: call backward before step")
    return parameter.grad
