"""The model once more, in numpy, token by token and in double precision: what the other two are measured against."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from training.shape import CONVOLUTION, EPSILON, ROPE_BASE, VOCABULARY, Shape

Array = npt.NDArray[np.float64]


def random_parameters(shape: Shape, seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
    """Parameters under which every part of the model matters, by the names they have in training."""
    random = np.random.default_rng(seed)
    heads, inner = shape.num_delta_heads, shape.delta_width
    query, key = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    common = {
        "attn_norm": (shape.width,),
        "post_attention_norm": (shape.width,),
        "ffn_gate": (shape.feed_forward, shape.width),
        "ffn_up": (shape.feed_forward, shape.width),
        "ffn_down": (shape.width, shape.feed_forward),
    }
    delta = {
        "attn_qkv": (3 * inner, shape.width),
        "attn_gate": (inner, shape.width),
        "ssm_beta": (heads, shape.width),
        "ssm_alpha": (heads, shape.width),
        "ssm_out": (shape.width, inner),
        "ssm_norm": (shape.delta_size,),
        "ssm_conv1d": (3 * inner, CONVOLUTION),
        "ssm_a": (heads,),
        "ssm_dt": (heads,),
    }
    attention = {
        "attn_q": (2 * query, shape.width),
        "attn_k": (key, shape.width),
        "attn_v": (key, shape.width),
        "attn_output": (shape.width, query),
        "attn_q_norm": (shape.head_size,),
        "attn_k_norm": (shape.head_size,),
    }
    sizes: dict[str, tuple[int, ...]] = {"token_embd": (VOCABULARY, shape.width), "output_norm": (shape.width,)}
    for layer in range(shape.num_layers):
        own = attention if shape.has_attention(layer) else delta
        sizes |= {f"blk.{layer}.{name}": size for name, size in (common | own).items()}
    return {name: (random.standard_normal(size) * 0.3).astype(np.float32) for name, size in sizes.items()}


def logits(parameters: Mapping[str, npt.NDArray[np.float32]], shape: Shape, tokens: list[int]) -> Array:
    """Of every position."""
    wide = {name: values.astype(np.float64) for name, values in parameters.items()}
    x = wide["token_embd"][tokens]
    for layer in range(shape.num_layers):
        part = {name.split(".")[2]: values for name, values in wide.items() if name.startswith(f"blk.{layer}.")}
        h = _norm(x, part["attn_norm"])
        x = x + (_attention if shape.has_attention(layer) else _delta)(h, part, shape)
        h = _norm(x, part["post_attention_norm"])
        x = x + (_silu(h @ part["ffn_gate"].T) * (h @ part["ffn_up"].T)) @ part["ffn_down"].T
    return _norm(x, wide["output_norm"]) @ wide["token_embd"].T


def _delta(h: Array, part: Mapping[str, Array], shape: Shape) -> Array:
    """The delta rule as it is written down: one state, one token after the other."""
    length, heads, size = len(h), shape.num_delta_heads, shape.delta_size
    mixed = np.pad(h @ part["attn_qkv"].T, ((CONVOLUTION - 1, 0), (0, 0)))
    windows = np.stack([mixed[j : j + length] for j in range(CONVOLUTION)], -1)
    q, k, v = _silu((windows * part["ssm_conv1d"]).sum(-1)).reshape(length, 3, heads, size).transpose(1, 0, 2, 3)
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + EPSILON) for x in (q, k))
    beta = _sigmoid(h @ part["ssm_beta"].T)
    decay = np.exp(-np.exp(part["ssm_a"]) * np.log1p(np.exp(h @ part["ssm_alpha"].T + part["ssm_dt"])))
    state = np.zeros((heads, size, size))
    outputs = []
    for t in range(length):
        state = state * decay[t][:, None, None]
        found = np.einsum("hkv,hk->hv", state, k[t])
        state = state + np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - found))
        outputs.append(np.einsum("hkv,hk->hv", state, q[t] * size**-0.5))
    output = np.array(outputs)
    output = output / np.sqrt((output**2).mean(-1, keepdims=True) + EPSILON) * part["ssm_norm"]
    gate = _silu((h @ part["attn_gate"].T).reshape(length, heads, size))
    result: Array = (output * gate).reshape(length, -1) @ part["ssm_out"].T
    return result


def _attention(h: Array, part: Mapping[str, Array], shape: Shape) -> Array:
    length, groups = len(h), shape.num_heads // shape.num_kv_heads
    q, gate = np.split((h @ part["attn_q"].T).reshape(length, shape.num_heads, -1), 2, -1)
    k, v = ((h @ part[name].T).reshape(length, shape.num_kv_heads, -1) for name in ("attn_k", "attn_v"))
    q, k = (_rotate(_norm(x, part[name]), shape.rotated) for x, name in ((q, "attn_q_norm"), (k, "attn_k_norm")))
    k, v = (np.repeat(x, groups, 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * shape.head_size**-0.5
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    output = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
    result: Array = (output * _sigmoid(gate)).reshape(length, -1) @ part["attn_output"].T
    return result


def _rotate(x: Array, rotated: int) -> Array:
    half = rotated // 2
    angles = np.arange(len(x))[:, None, None] * ROPE_BASE ** -(np.arange(half) / half)
    a, b = x[..., :half], x[..., half:rotated]
    turned = (a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles))
    return np.concatenate([*turned, x[..., rotated:]], -1)


def _norm(x: Array, weight: Array) -> Array:
    result: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * (1 + weight)
    return result


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)
