"""The model, for training: a Qwen3.5 whose parameters bear the names that their tensors have in a GGUF file.

Norms are zero-centred, as in Qwen: their weight is 1 plus the parameter. `convert.py` adds it.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.kernels import Kernels
from training.shape import CONVOLUTION, EPSILON, ROPE_BASE, VOCABULARY, Shape
from training.tokens import END_OF_TEXT

_DEVIATION = 0.02
_FORGET = -25.0  # log of the decay at the first token of a document: the state of the one before is gone


class Layer(nn.Module):
    """What all layers have: the feed-forward network and the norms around it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn_norm = nn.Parameter(torch.zeros(shape.width))
        self.post_attention_norm = nn.Parameter(torch.zeros(shape.width))
        self.ffn_gate = _matrix(shape.feed_forward, shape.width)
        self.ffn_up = _matrix(shape.feed_forward, shape.width)
        self.ffn_down = _matrix(shape.width, shape.feed_forward, _output_deviation(shape))


class DeltaLayer(Layer):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        heads, width = shape.num_delta_heads, shape.delta_width
        self.attn_qkv = _matrix(3 * width, shape.width)
        self.attn_gate = _matrix(width, shape.width)
        self.ssm_beta = _matrix(heads, shape.width)
        self.ssm_alpha = _matrix(heads, shape.width)
        self.ssm_out = _matrix(shape.width, width, _output_deviation(shape))
        self.ssm_norm = nn.Parameter(torch.ones(shape.delta_size))
        self.ssm_conv1d = nn.Parameter(torch.empty(3 * width, CONVOLUTION).uniform_(-0.5, 0.5))
        self.ssm_a = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        step = torch.exp(torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)))
        self.ssm_dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # so that softplus gives the step


class AttentionLayer(Layer):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        query, key = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
        self.attn_q = _matrix(2 * query, shape.width)  # each head's query and its gate
        self.attn_k = _matrix(key, shape.width)
        self.attn_v = _matrix(key, shape.width)
        self.attn_output = _matrix(shape.width, query, _output_deviation(shape))
        self.attn_q_norm = nn.Parameter(torch.zeros(shape.head_size))
        self.attn_k_norm = nn.Parameter(torch.zeros(shape.head_size))


class Model(nn.Module):
    """Embeddings are tied: what reads a token also scores it. `kind` is what it computes in."""

    def __init__(self, shape: Shape, kernels: Kernels, kind: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.kind, self._kernels = shape, kind, kernels
        self.token_embd = _matrix(VOCABULARY, shape.width)
        self.output_norm = nn.Parameter(torch.zeros(shape.width))
        layers = (AttentionLayer if shape.has_attention(i) else DeltaLayer for i in range(shape.num_layers))
        self.blk = nn.ModuleList(layer(shape) for layer in layers)
        compiled = kernels.compiled
        self._before_delta, self._after_delta = compiled(before_delta), compiled(after_delta)
        self._before_attention, self._after_attention = compiled(before_attention), compiled(after_attention)
        self._loss = compiled(weighted_loss)

    def loss(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Rows may hold several documents: none sees the one before it."""
        tokens = rows[:, :-1]
        starts = torch.zeros_like(tokens, dtype=torch.bool)
        starts[:, 0] = True
        starts[:, 1:] = (tokens[:, :-1] == END_OF_TEXT) & (tokens[:, 1:] != END_OF_TEXT)
        hidden = self._layers(tokens, starts)
        loss: Tensor = self._loss(hidden, self.output_norm, self.token_embd, rows[:, 1:], weights[:, 1:])
        return loss

    @torch.no_grad()
    def logits(self, tokens: Tensor) -> Tensor:
        """Of every position, for rows of one document each."""
        starts = torch.zeros_like(tokens, dtype=torch.bool)
        starts[:, 0] = True
        return functional.linear(
            rms_norm(self._layers(tokens, starts), self.output_norm), self.token_embd.to(self.kind)
        )

    def _layers(self, tokens: Tensor, starts: Tensor) -> Tensor:
        documents = starts.int().cumsum(1)
        mask = self._kernels.mask(documents)
        same = [functional.pad(documents[:, j:] == documents[:, :-j], (j, 0)) for j in range(1, CONVOLUTION)]
        cosine, sine = self._rotation(tokens.shape[1], tokens.device)
        hidden = functional.embedding(tokens, self.token_embd).to(self.kind)
        for layer in self.blk:
            if isinstance(layer, AttentionLayer):
                q, k, v, gate = self._before_attention(hidden, layer, self.shape, cosine, sine)
                hidden = self._after_attention(hidden, self._kernels.attention(q, k, v, mask), gate, layer)
            else:
                q, k, v, g, beta, gate = self._before_delta(hidden, layer, self.shape, same, starts)
                hidden = self._after_delta(hidden, self._kernels.delta(q, k, v, g, beta), gate, layer)
        return hidden

    def _rotation(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        steps = torch.arange(0, self.shape.rotated, 2, device=device).float() / self.shape.rotated
        angles = torch.arange(length, device=device).float()[:, None] * ROPE_BASE**-steps
        return angles.cos(), angles.sin()


# --- the parts of a layer, as functions, so that one compilation serves all layers


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON) * (1.0 + weight.float())).to(x.dtype)


def unit(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + EPSILON)).to(x.dtype)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight.to(x.dtype))


def feed_forward(x: Tensor, layer: Layer) -> Tensor:
    h = rms_norm(x, layer.post_attention_norm)
    return x + linear(functional.silu(linear(h, layer.ffn_gate)) * linear(h, layer.ffn_up), layer.ffn_down)


def before_delta(
    x: Tensor, layer: DeltaLayer, shape: Shape, same: list[Tensor], starts: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values, log of the decay, beta and the output's gate."""
    h = rms_norm(x, layer.attn_norm)
    heads = (*x.shape[:2], shape.num_delta_heads, shape.delta_size)
    mixed = functional.silu(convolved(linear(h, layer.attn_qkv), layer.ssm_conv1d.to(h.dtype), same))
    q, k, v = (part.reshape(heads) for part in mixed.chunk(3, -1))
    gate = linear(h, layer.attn_gate).reshape(heads)
    beta = torch.sigmoid(linear(h, layer.ssm_beta).float()).to(h.dtype)
    g = -layer.ssm_a.float().exp() * functional.softplus(linear(h, layer.ssm_alpha).float() + layer.ssm_dt.float())
    g = torch.where(starts.unsqueeze(-1), torch.full_like(g, _FORGET), g)
    return unit(q).contiguous(), unit(k).contiguous(), v.contiguous(), g, beta, gate


def convolved(x: Tensor, weight: Tensor, same: list[Tensor]) -> Tensor:
    """Each value with those of the last tokens of the same document; same[j-1] says whether j tokens back is."""
    output = x * weight[:, -1]
    for j, is_same in enumerate(same, 1):
        earlier = functional.pad(x, (0, 0, j, 0))[:, : x.shape[1]]
        output = output + earlier * is_same.unsqueeze(-1).to(x.dtype) * weight[:, -1 - j]
    return output


def after_delta(x: Tensor, output: Tensor, gate: Tensor, layer: DeltaLayer) -> Tensor:
    wide = output.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON) * layer.ssm_norm.float()
    gated = (wide * functional.silu(gate.float())).to(x.dtype).flatten(2)
    return feed_forward(x + linear(gated, layer.ssm_out), layer)


def before_attention(
    x: Tensor, layer: AttentionLayer, shape: Shape, cosine: Tensor, sine: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, head, time, size], and the output's gate."""
    h = rms_norm(x, layer.attn_norm)
    q, gate = linear(h, layer.attn_q).unflatten(-1, (shape.num_heads, -1)).chunk(2, -1)
    k = linear(h, layer.attn_k).unflatten(-1, (shape.num_kv_heads, -1))
    v = linear(h, layer.attn_v).unflatten(-1, (shape.num_kv_heads, -1)).transpose(1, 2)
    q = rotated(rms_norm(q, layer.attn_q_norm).transpose(1, 2), cosine, sine)
    k = rotated(rms_norm(k, layer.attn_k_norm).transpose(1, 2), cosine, sine)
    groups = shape.num_heads // shape.num_kv_heads
    k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
    return q.contiguous(), k.contiguous(), v.contiguous(), gate.flatten(2)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = cosine.shape[-1]
    a, b = x[..., :half].float(), x[..., half : 2 * half].float()
    turned = torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)
    return torch.cat([turned, x[..., 2 * half :]], -1)


def after_attention(x: Tensor, output: Tensor, gate: Tensor, layer: AttentionLayer) -> Tensor:
    gated = output.transpose(1, 2).flatten(2) * torch.sigmoid(gate.float()).to(x.dtype)
    return feed_forward(x + linear(gated, layer.attn_output), layer)


def weighted_loss(x: Tensor, norm: Tensor, embedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    logits = linear(rms_norm(x, norm), embedding).float()
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def _matrix(outputs: int, inputs: int, deviation: float = _DEVIATION) -> nn.Parameter:
    return nn.Parameter(torch.randn(outputs, inputs) * deviation)


def _output_deviation(shape: Shape) -> float:
    """Smaller by the number of additions to the residual stream."""
    return _DEVIATION / math.sqrt(2 * shape.num_layers)
