"""One recipe per model: which architecture it is, and the metadata that makes a small one."""

from collections.abc import Callable
from dataclasses import dataclass

from .parts import (
    WINDOW,
    Metadata,
    Scale,
    attention,
    attention_in,
    body,
    delta_net,
    experts,
    indexer,
    latent_attention,
    mamba1,
    mamba2,
    per_layer,
    rwkv,
)

# Of the models that most tests run: most of their time goes into heads times cells, and two show a wrong state too.
_FEW_HEADS = 2

# An indexer takes ten times as long as the layer that it is for. With two of them the first tokens do not always act.
_INDEXED_LAYERS = 3


@dataclass(frozen=True)
class Recipe:
    """How to make one model. `omit` names tensors that must stay out of the file: older or optional alternatives that
    the library makes beside those it uses. `embedding` is the deviation of the token embeddings."""

    architecture: str
    metadata: Callable[[Scale], Metadata]
    omit: tuple[str, ...] = ()
    embedding: float = 1.0


def _nemotron_h(scale: Scale) -> Metadata:
    """Each layer is a state-space, an attention or a feed-forward layer, and nothing else."""
    layers = "MAFMAF"
    return (
        body(scale, layers=len(layers))
        | mamba2(scale)
        | attention_in(scale, layers)
        | {"feed_forward_length": per_layer(scale, layers, "F", 128 * scale.width)}
    )


def _lfm2(scale: Scale) -> Metadata:
    return body(scale, layers=5) | attention_in(scale, "ACACA") | {"shortconv.l_cache": 3}


def _lfm2_window(scale: Scale) -> Metadata:
    """Every attention layer has the window here, so the far past comes only in hops: more of them reach further."""
    return (
        body(scale, layers=5)
        | attention_in(scale, "AACAA")
        | {"shortconv.l_cache": 3, "attention.sliding_window": WINDOW}
    )


def _kimi_linear(scale: Scale) -> Metadata:
    return (
        body(scale, layers=4)
        | latent_attention(scale)
        | experts(scale)
        | {
            "attention.head_count_kv": per_layer(scale, "KAKA", "A", 1),
            "leading_dense_block_count": 1,
            "ssm.conv_kernel": 4,
            "kda.head_dim": 32,
        }
    )


def _rwkv6(scale: Scale) -> Metadata:
    return body(scale, layers=3) | rwkv() | {"time_mix_extra_dim": 8, "time_decay_extra_dim": 8}


def _rwkv7(scale: Scale) -> Metadata:
    ranks = ("decay", "iclr", "value_residual_mix", "gate")
    return body(scale, layers=3) | rwkv() | {f"attention.{rank}_lora_rank": 8 for rank in ranks}


def _deepseek2(scale: Scale, layers: int = 4) -> Metadata:
    return body(scale, layers) | latent_attention(scale) | experts(scale) | {"leading_dense_block_count": 1}


def _deepseek4(scale: Scale) -> Metadata:
    """A window in every layer, and beside it the far past compressed 4 or 128 times. Four streams are hard-wired."""
    ratios = [0, 4, 128] * scale.depth
    return (
        body(scale, _INDEXED_LAYERS)
        | attention(scale)
        | experts(scale)
        | indexer()
        | {
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": 32,
            "attention.output_group_count": 2,
            "attention.output_lora_rank": 16,
            "attention.sliding_window": WINDOW,
            "attention.compress_ratios": ratios,
            "attention.compress_rope_freq_base": 10000.0,
            "expert_gating_func": 4,
            "swiglu_clamp_exp": [10.0] * len(ratios),
            "hyper_connection.count": 4,
            "hyper_connection.sinkhorn_iterations": 4,
            "hyper_connection.epsilon": 1e-6,
            "hash_layer_count": 0,
        }
    )


def _qwen35(scale: Scale) -> Metadata:
    sections = {"rope.dimension_sections": [3, 3, 2, 0]}
    return body(scale, layers=4) | attention(scale, _FEW_HEADS) | delta_net(scale) | sections


def _qwen35_mtp(scale: Scale) -> Metadata:
    """One layer more, which guesses the token after the next one."""
    return _qwen35(scale) | {"block_count": 4 * scale.depth + 1, "nextn_predict_layers": 1}


RECIPES = {
    "llama": Recipe("llama", lambda scale: body(scale, layers=4) | attention(scale, _FEW_HEADS)),
    "qwen35": Recipe("qwen35", _qwen35, omit=("cls.output",)),
    "qwen3next": Recipe(
        "qwen3next",
        lambda scale: body(scale, layers=4) | attention(scale) | delta_net(scale) | experts(scale),
        omit=(".ssm_in.",),
    ),
    "kimi-linear": Recipe("kimi-linear", _kimi_linear),
    "granitehybrid": Recipe(
        "granitehybrid", lambda scale: body(scale, layers=4) | attention_in(scale, "MAMA") | mamba2(scale)
    ),
    "nemotron_h": Recipe("nemotron_h", _nemotron_h),
    "falcon-h1": Recipe("falcon-h1", lambda scale: body(scale, layers=2) | attention(scale) | mamba2(scale)),
    "jamba": Recipe("jamba", lambda scale: body(scale, layers=4) | attention_in(scale, "MAMA") | mamba1(scale)),
    "lfm2": Recipe("lfm2", _lfm2, omit=("dense_2",)),
    "lfm2-window": Recipe("lfm2", _lfm2_window, omit=("dense_2",)),
    "mamba": Recipe("mamba", lambda scale: body(scale, layers=3) | mamba1(scale)),
    "mamba2": Recipe("mamba2", lambda scale: body(scale, layers=3) | mamba2(scale)),
    "rwkv6": Recipe("rwkv6", _rwkv6),
    "rwkv7": Recipe("rwkv7", _rwkv7),
    "gemma3": Recipe(
        "gemma3",
        lambda scale: (
            body(scale, layers=4)
            | attention(scale, _FEW_HEADS)
            | {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 2}
        ),
        # Gemma multiplies its embeddings by the root of their length.
        embedding=0.25,
    ),
    "gpt-oss": Recipe(
        "gpt-oss",
        lambda scale: body(scale, layers=4) | attention(scale) | experts(scale) | {"attention.sliding_window": WINDOW},
    ),
    "deepseek2": Recipe("deepseek2", _deepseek2),
    "deepseek32": Recipe("deepseek32", lambda scale: _deepseek2(scale, _INDEXED_LAYERS) | indexer()),
    "deepseek4": Recipe("deepseek4", _deepseek4),
}

ARCHITECTURES: tuple[str, ...] = tuple(RECIPES)

# The memory of this one is that of its architecture; it is for drafts by its next-token layer, which is often right.
MTP = "qwen35-mtp"
RECIPES[MTP] = Recipe(
    "qwen35",
    _qwen35_mtp,
    omit=("cls.output", "nextn.embed_tokens", "nextn.shared_head", "scale"),
    embedding=4.0,
)

# Encoders read a text at once, and write none: a vector comes of its first token, or a score.
ENCODERS = ("bert", "bert-rank")


def _bert(scale: Scale, pooling: int) -> Metadata:
    heads = {"attention.head_count": 2 * scale.width, "attention.causal": False, "pooling_type": pooling}
    return body(scale, layers=2) | heads


RECIPES["bert"] = Recipe("bert", lambda scale: _bert(scale, pooling=2), omit=("cls",))
RECIPES["bert-rank"] = Recipe("bert", lambda scale: _bert(scale, pooling=4))
