"""The metadata of the parts that architectures share: attention, experts, recurrent layers.

Keys stand without the architecture's prefix. Sizes are the smallest that the library's kernels accept and that still
hold a past of some tens of tokens.
"""

from dataclasses import dataclass

from .gguf import Value

Metadata = dict[str, Value]

# A text of 200 tokens leaves the window far behind.
WINDOW = 32

_HEAD = 16
_KV_RANK = 32


@dataclass(frozen=True)
class Scale:
    """How much larger than the smallest model: `width` times as wide, `depth` times as many layers."""

    width: int = 1
    depth: int = 1
    context_length: int = 4096


def body(scale: Scale, layers: int) -> Metadata:
    """What every model has."""
    return {
        "context_length": scale.context_length,
        "embedding_length": 64 * scale.width,
        "feed_forward_length": 128 * scale.width,
        "block_count": layers * scale.depth,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }


def attention(scale: Scale, num_heads: int = 4) -> Metadata:
    """Attention in every layer; with four heads, two of them share keys and values."""
    return {
        "attention.head_count": num_heads * scale.width,
        "attention.head_count_kv": 2 * scale.width,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "rope.dimension_count": _HEAD,
        "rope.freq_base": 10000.0,
    }


def attention_in(scale: Scale, layers: str) -> Metadata:
    """Attention only in the layers written "A". The library tells the others by their lack of key-value heads."""
    return attention(scale) | {"attention.head_count_kv": per_layer(scale, layers, "A", 2 * scale.width)}


def per_layer(scale: Scale, layers: str, kind: str, value: int) -> list[int]:
    """The value in the layers of one kind and 0 in the others."""
    return [value if layer == kind else 0 for layer in layers * scale.depth]


def latent_attention(scale: Scale) -> Metadata:
    """Multi-head latent attention: one compressed row per token stands for all keys and values."""
    return attention(scale) | {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 32,
        "attention.kv_lora_rank": _KV_RANK,
        "attention.key_length": _KV_RANK + _HEAD,
        "attention.value_length": _KV_RANK,
        "attention.key_length_mla": 2 * _HEAD,
        "attention.value_length_mla": _HEAD,
    }


def indexer() -> Metadata:
    """Picks the few tokens that sparse attention reads. The library rotates its keys in blocks of 64.

    A score is 0 where no head finds anything: with few heads many are, and which of equal ones is picked depends on
    where its cell lies. Real models have 64.
    """
    return {"attention.indexer.head_count": 16, "attention.indexer.key_length": 64, "attention.indexer.top_k": 32}


def experts(scale: Scale) -> Metadata:
    """A mixture of experts in place of the feed-forward network, with one shared expert."""
    return {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 32 * scale.width,
        "expert_shared_feed_forward_length": 32 * scale.width,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }


def mamba1(scale: Scale) -> Metadata:
    """State-space layers of the first kind: a decay of its own for each channel."""
    return {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 128 * scale.width,
        "ssm.state_size": 16,
        "ssm.time_step_rank": 8,
    }


def mamba2(scale: Scale) -> Metadata:
    """State-space layers of the second kind: one decay per head."""
    return mamba1(scale) | {"ssm.time_step_rank": 8 * scale.width, "ssm.group_count": 2}


def delta_net(scale: Scale) -> Metadata:
    """Gated DeltaNet in every other layer."""
    return {
        "full_attention_interval": 2,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 64 * scale.width,
        "ssm.state_size": 32,
        "ssm.time_step_rank": 2 * scale.width,
        "ssm.group_count": scale.width,
    }


def rwkv() -> Metadata:
    """What both versions of RWKV share."""
    return {"attention.head_count": 0, "wkv.head_size": 32, "token_shift_count": 2}
