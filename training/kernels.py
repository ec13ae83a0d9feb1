"""The two operations worth a kernel of their own, attention and the delta rule, for the machine at hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.delta import delta_rule

Attention = Callable[[Tensor, Tensor, Tensor, Any], Tensor]


@dataclass(frozen=True)
class Kernels:
    """`mask` turns the number of the document of each token into what `attention` wants to know of it."""

    delta: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    mask: Callable[[Tensor], Any]
    attention: Attention
    compiled: Callable[[Any], Any]


def plain() -> Kernels:
    """For any device."""
    return Kernels(delta_rule, _dense_mask, _attention, lambda function: function)


def fast(batch: int, length: int) -> Kernels:
    """For a GPU and rows of one size."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415

    from training import delta_gpu  # noqa: PLC0415

    document = torch.zeros(batch, length, dtype=torch.int32, device="cuda")
    attend = torch.compile(flex_attention, dynamic=False)
    make_mask = torch.compile(create_block_mask, dynamic=False)

    def is_seen(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (document[row, query] == document[row, key])

    def mask(documents: Tensor) -> Any:  # noqa: ANN401
        document.copy_(documents)  # always the same tensor, or the mask would be compiled anew
        return make_mask(is_seen, batch, None, length, length, device="cuda")

    def attention(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Tensor:  # noqa: ANN401
        output: Tensor = attend(q, k, v, block_mask=block_mask)
        return output

    return Kernels(delta_gpu.load(), mask, attention, lambda function: torch.compile(function, dynamic=False))


def _dense_mask(documents: Tensor) -> Tensor:
    length = documents.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    return ((documents[:, :, None] == documents[:, None, :]) & before)[:, None]


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
