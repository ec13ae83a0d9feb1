"""Recipes of architectures that few tests run: their memory is built like no other's, or is easily taken for another.

llama.cpp does not read what an architecture does not have, so one long list of metadata serves nearly all of them.
"""

import numpy as np

from .architectures import RECIPES, Recipe
from .parts import WINDOW, Metadata, Scale, attention, body, delta_net, experts, indexer, latent_attention, mamba2

_EVERY_OTHER = [1, 0, 1, 0]  # layers
_ATTENDS = [0, 1, 0, 1]
_HYPER_CONNECTIONS: Metadata = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 4,
    "hyper_connection.epsilon": 1e-6,
    "hyper_connection.low_rank": 8,
    "hyper_connection.magnitude": 1.0,
}
_COMMON: Metadata = {
    "leading_dense_block_count": 1,
    "interleave_moe_layer_step": 1,
    "expert_group_count": 1,
    "expert_group_used_count": 1,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "embedding_scale": 1.0,
    "attention.scale": 0.25,
    "attention.key_length_swa": 16,
    "attention.value_length_swa": 16,
    "attention.shared_kv_layers": 0,
    "rope.dimension_count_swa": 16,
    "rope.freq_base_swa": 10000.0,
    "rope.dimension_sections": [3, 3, 2, 0],
    "embedding_length_per_layer_input": 32,
    "swiglu_clamp_exp": 10.0,
    "shortconv.l_cache": 3,
    "kda.head_dim": 32,
    "kda.gate_lower_bound": -5.0,
    "ssm.conv_kernel": 4,
    "altup.num_inputs": 4,
    "altup.active_idx": 0,
}
_WINDOWS: Metadata = {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": _EVERY_OTHER}


def _recipe(architecture: str, *parts: Metadata, layers: int = 4) -> Recipe:
    def metadata(scale: Scale) -> Metadata:
        whole = body(scale, layers) | attention(scale) | experts(scale) | _COMMON
        for part in parts:
            whole |= part
        return whole

    return Recipe(architecture, metadata)


def _latent(*parts: Metadata) -> tuple[Metadata, ...]:
    return (latent_attention(Scale()), indexer(), *parts)


_BLOCKS: Metadata = {"attention.compress_ratios": [0, 4, 0, 4]}
_POOLED = (delta_net(Scale()), indexer(), _HYPER_CONNECTIONS, _BLOCKS)
_NGRAMS: Metadata = {  # which the embedding of a token depends on
    "ple.layers": [0],
    "ple.ngram_size": 3,
    "ple.heads_per_ngram": 2,
    "ple.conv_kernel": 4,
    "ple.eos_token_id": 1,
    "embedding_length_per_layer_input": 16,
    "ple.layer_multipliers": np.array([3, 5, 7], np.uint64),
    "ple.head_offsets": np.array([0, 50, 100, 150], np.uint64),
    "ple.head_vocab_sizes": np.array([50, 50, 50, 50], np.uint64),
}
_PLAIN_WINDOWS = (
    *("afmoe", "cohere2", "exaone-moe", "gemma2", "gemma3n", "gemma4", "granite_swa", "laguna", "maple", "mellum"),
    *("mimo2", "muse-glimmer", "plamo3", "smallthinker", "spark2_5", "step35"),
)

OTHERS = {
    # Sliding windows: beside layers that share their K/V, of chunks, in all layers, or in none though one is named.
    **{name: _recipe(name, _WINDOWS) for name in _PLAIN_WINDOWS},
    "exaone4-no-window": _recipe("exaone4", {"attention.sliding_window": WINDOW}),
    "llama4": _recipe("llama4"),
    "olmo2-windows": _recipe("olmo2", _WINDOWS, {"attention.sliding_window_pattern": [1, 1, 1, 1]}),
    # Attention to what an indexer has selected, or a router; layers that are run through more than once.
    "dots3note": _recipe(
        "dots3note",
        *_latent(_WINDOWS),
        {
            "attention.kv_lora_rank_swa": 32,
            "attention.key_length_mla_swa": 32,
            "attention.value_length_mla_swa": 16,
            "attention.key_length_swa": 48,
            "attention.value_length_swa": 32,
            "attention.indexer.types": _ATTENDS,
        },
    ),
    "glm-dsa": _recipe("glm-dsa", *_latent()),
    "graniteswitch": _recipe(
        "graniteswitch",
        {
            "adapters.count": 2,
            "adapters.lora_rank": 4,
            "adapters.router_gain": 10.0,
            "adapters.token_ids_activate": [50, 51],
            "adapters.token_ids_substitute": [60, 61],
        },
    ),
    "hrm_text": _recipe("hrm_text", {"hrm.layers_per_stack": 2, "hrm.h_cycles": 2, "hrm.l_cycles": 2}, layers=12),
    "hy_v4": _recipe("hy_v4", *_latent(_HYPER_CONNECTIONS, {"attention.indexer.types": [1, 1, 0, 1]})),
    "minicpm3": _recipe(
        "minicpm3",
        latent_attention(Scale()),
        {"attention.head_count_kv": 4, "attention.key_length": 32, "attention.value_length": 32},
    ),
    "minimax-m3": _recipe(
        "minimax-m3", indexer(), {"attention.indexer.block_size": 16, "attention.indexer.local_blocks": 1}
    ),
    # Recurrent layers beside attention.
    "bailingmoe3": _recipe("bailingmoe3", *_latent({"attention.head_count_kv": _ATTENDS})),
    "kimi-k3": _recipe(
        "kimi-k3",
        *_latent({"attention.head_count_kv": _ATTENDS}),
        {"attn_res.block_size": 2, "activation.situ_beta": 1.0, "activation.situ_linear_beta": 1.0},
    ),
    "lfm2moe": _recipe("lfm2moe", {"attention.head_count_kv": [0, 2, 0, 2]}),
    "minimax-01": _recipe("minimax-01", {"attention.head_count_kv": 4, "full_attention_interval": 2}),
    "nemotron_h_moe": _recipe(
        "nemotron_h_moe",
        mamba2(Scale()),
        {"attention.head_count_kv": [0, 2, 0, 0, 2, 0], "feed_forward_length": [0, 0, 128, 0, 0, 128]},
        layers=6,
    ),
    # Recurrent layers beside attention to what is selected by the pooled keys of several tokens.
    "glm5-next": _recipe(
        "glm5-next",
        *_latent(_HYPER_CONNECTIONS),
        {
            "attention.head_count_kv": _ATTENDS,
            "attention.indexer.kpool": 4,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "rope.dimension_count": 0,
        },
    ),
    "qwen4exp": _recipe("qwen4exp", *_POOLED, _NGRAMS),
}
WINDOWED = (*_PLAIN_WINDOWS, "llama4", "olmo2-windows", "dots3note")
# The others have attention alone.
HYBRID = ("bailingmoe3", "glm5-next", "kimi-k3", "lfm2moe", "minimax-01", "nemotron_h_moe", "qwen4exp")

# llama.cpp does not save the positions of the pooled keys of this one, and computes others after loading.
INEXACT = "qwen4exp-without-ngrams"
DIFFUSION = "dream"
# llama.cpp computes something else if several sequences have several tokens each in one batch.
MIXING = "plamo2"

RECIPES |= OTHERS | {INEXACT: _recipe("qwen4exp", *_POOLED), DIFFUSION: _recipe("dream")}
RECIPES[MIXING] = _recipe(
    "plamo2",
    mamba2(Scale()),
    {"attention.head_count_kv": [0, 2, 0, 2], "ssm.time_step_rank": 4, "ssm.group_count": 0},
)
