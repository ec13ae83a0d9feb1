"""The random models of eleven kinds in three sizes: which architecture, how wide, which layers in which order.

The recipes are those of the test models. Sizes are other: kernels for GPUs want heads of 64 and more. `8b` has the
widths and the depth of a published model, with fewer experts where that has more weights than about ten billion; `4b`
is its first half, with the same bytes in each layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.factory.architectures import RECIPES, Recipe
from tests.factory.cache import metadata_of
from tests.factory.gguf import Value
from tests.factory.parts import WINDOW, Scale, attention, body, experts
from tests.factory.vocabulary import small_vocabulary

SIZES = ("8b", "4b", "small")
_NUM_TOKENS = {"8b": 151936, "4b": 151936, "small": 4096}
_CONTEXT = 262144

_Sizes = dict[str, Value]
_QWEN3 = Recipe("qwen3", lambda scale: body(scale, layers=4) | attention(scale))
_QWEN3_MOE = Recipe("qwen3moe", lambda scale: body(scale, layers=4) | attention(scale) | experts(scale))
# "M" is a state-space layer, "F" a feed-forward one, "A" has attention: those of Nemotron-H 8B
_NEMOTRON_H = "MFMFMFMA" + 3 * "FMFMFMFMFMA" + "FMFMFMFMFMF"


@dataclass(frozen=True)
class Shape:
    """One model. `layers` has a letter for each: those of the same letter have the same tensors.

    `sizes` are the metadata for such layers. They stand without the architecture's prefix, and replace those of the
    recipe.
    """

    recipe: Recipe
    num_tokens: int
    layers: str
    sizes: Callable[[str], Mapping[str, Value]]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def beginning(self) -> "Shape":
        """Its first layers, up to the first one of each letter."""
        return replace(self, layers=self.layers[: 1 + max(map(self.layers.index, set(self.layers)))])

    @property
    def metadata(self) -> dict[str, Value]:
        """The keys of the file. The vocabulary is the small one, filled up with tokens that no text contains."""
        name = self.recipe.architecture
        words = small_vocabulary().metadata()
        tokens, types = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.token_type"]
        assert isinstance(tokens, list)
        assert isinstance(types, list)
        num_missing = self.num_tokens - len(tokens)
        own = {**self.sizes(self.layers), "vocab_size": self.num_tokens, "block_count": self.num_layers}
        return (
            metadata_of(self.recipe, Scale(context_length=_CONTEXT))
            | {
                "tokenizer.ggml.tokens": [*map(str, tokens), *(f"unused{number}" for number in range(num_missing))],
                "tokenizer.ggml.token_type": [*map(int, types), *[1] * num_missing],
            }
            | {f"{name}.{key}": value for key, value in own.items()}
        )


def shape(kind: str, size: str) -> Shape:
    """A model of one of `KINDS` in one of `SIZES`."""
    recipe, large, small = _SHAPES[kind]
    layers, sizes = small if size == "small" else large
    if size == "4b":
        layers = layers[: len(layers) // 2]
    return Shape(recipe, _NUM_TOKENS[size], layers, sizes)


def _alike(*parts: _Sizes) -> Callable[[str], _Sizes]:
    """Sizes that do not depend on the layers."""
    return lambda _: {key: value for part in parts for key, value in part.items()}


def _width(embedding: int, feed_forward: int) -> _Sizes:
    return {"embedding_length": embedding, "feed_forward_length": feed_forward}


def _attention(num_heads: int, num_kv_heads: int, head: int) -> _Sizes:
    return {
        "attention.head_count": num_heads,
        "attention.head_count_kv": num_kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "rope.freq_base": 1e6,
    }


def _delta_net(inner: int, rank: int, groups: int) -> _Sizes:
    """As in Qwen3.5: three layers of Gated DeltaNet, then one of attention."""
    return {
        "full_attention_interval": 4,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "rope.freq_base": 1e7,
        "ssm.state_size": 128,
        "ssm.inner_size": inner,
        "ssm.time_step_rank": rank,
        "ssm.group_count": groups,
    }


def _window(window: int, pattern: int) -> _Sizes:
    return {"attention.sliding_window": window, "attention.sliding_window_pattern": pattern}


def _experts(count: int, used: int, feed_forward: int) -> _Sizes:
    return {
        "expert_count": count,
        "expert_used_count": used,
        "expert_feed_forward_length": feed_forward,
        "expert_shared_feed_forward_length": feed_forward,
    }


def _mamba2(inner: int, num_heads: int, groups: int) -> _Sizes:
    return {
        "ssm.inner_size": inner,
        "ssm.time_step_rank": num_heads,
        "ssm.group_count": groups,
        "ssm.state_size": 128,
    }


def _rwkv7(ranks: tuple[int, int, int, int]) -> _Sizes:
    names = ("decay", "iclr", "value_residual_mix", "gate")
    own: _Sizes = {f"attention.{name}_lora_rank": rank for name, rank in zip(names, ranks, strict=True)}
    return own | {"wkv.head_size": 64}


def _latent(num_heads: int, query_rank: int) -> _Sizes:
    """As in DeepSeek V2: rows of 512 + 64 numbers, the only ones that kernels have."""
    return _attention(num_heads, 1, 64) | {
        "attention.q_lora_rank": query_rank,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
    }


def _some_attention(num_kv_heads: int, feed_forward: int, *parts: _Sizes) -> Callable[[str], _Sizes]:
    """State-space layers, some with attention instead. Where some are feed-forward layers, no other has such a part."""

    def sizes(layers: str) -> _Sizes:
        own: _Sizes = {"attention.head_count_kv": [num_kv_heads if layer == "A" else 0 for layer in layers]}
        if "F" in layers:
            own["feed_forward_length"] = [feed_forward if layer == "F" else 0 for layer in layers]
        return _alike(*parts)(layers) | own

    return sizes


_Sized = tuple[str, Callable[[str], _Sizes]]
_SHAPES: dict[str, tuple[Recipe, _Sized, _Sized]] = {
    "hybrid": (  # Qwen3.5
        RECIPES["qwen35"],
        (8 * "RRRA", _alike(_width(4096, 12288), _attention(16, 4, 256), _delta_net(4096, 32, 16))),
        (2 * "RRRA", _alike(_width(256, 512), _attention(2, 1, 128), _delta_net(256, 2, 1))),
    ),
    "hybrid-moe": (  # Qwen3-Next, with 80 experts instead of 512: 14 B weights
        RECIPES["qwen3next"],
        (
            12 * "RRRA",
            _alike(_width(2048, 5120), _attention(16, 2, 256), _delta_net(4096, 32, 16), _experts(80, 10, 512)),
        ),
        (
            2 * "RRRA",
            _alike(_width(256, 512), _attention(2, 1, 128), _delta_net(256, 2, 1), _experts(8, 2, 128)),
        ),
    ),
    "window-1024": (  # Gemma 3: five layers with a window, then one without
        RECIPES["gemma3"],
        (36 * "A", _alike(_width(3840, 15360), _attention(16, 8, 256), _window(1024, 6))),
        (4 * "A", _alike(_width(256, 512), _attention(4, 2, 64), _window(WINDOW, 2))),
    ),
    "window-128": (  # gpt-oss 20B, with 12 experts instead of 32: a window in every other layer
        RECIPES["gpt-oss"],
        (24 * "A", _alike(_width(2880, 2880), _attention(64, 8, 64), _window(128, 2), _experts(12, 4, 2880))),
        (4 * "A", _alike(_width(256, 512), _attention(4, 2, 64), _window(WINDOW, 2), _experts(8, 2, 128))),
    ),
    "recurrent": (  # Mamba-2 Codestral, 48 of its 64 layers
        RECIPES["mamba2"],
        (48 * "M", _alike(_width(4096, 0), _mamba2(8192, 128, 8))),
        (4 * "M", _alike(_width(256, 0), _mamba2(512, 8, 2))),
    ),
    "rwkv7": (  # RWKV-7 World 7.2B: the first layer mixes no values
        RECIPES["rwkv7"],
        ("F" + 31 * "R", _alike(_width(4096, 16384), _rwkv7((128, 128, 96, 480)))),
        ("F" + 3 * "R", _alike(_width(256, 512), _rwkv7((32, 32, 64, 64)))),
    ),
    "dense": (  # Qwen3 8B
        _QWEN3,
        (36 * "A", _alike(_width(4096, 12288), _attention(32, 8, 128))),
        (4 * "A", _alike(_width(256, 512), _attention(4, 2, 64))),
    ),
    "moe": (  # Qwen3 30B-A3B, with 32 experts instead of 128
        _QWEN3_MOE,
        (48 * "A", _alike(_width(2048, 6144), _attention(32, 4, 128), _experts(32, 8, 768))),
        (4 * "A", _alike(_width(256, 512), _attention(4, 2, 64), _experts(8, 2, 128))),
    ),
    "mla": (  # DeepSeek V2 Lite with V2's queries, and 28 experts instead of 64: the first layer is dense
        RECIPES["deepseek2"],
        ("D" + 27 * "E", _alike(_width(2048, 10944), _latent(16, 1536), _experts(28, 6, 1408))),
        ("D" + 3 * "E", _alike(_width(256, 512), _latent(4, 64), _experts(8, 2, 128))),
    ),
    "nemotron-h": (
        RECIPES["nemotron_h"],
        (
            _NEMOTRON_H,
            _some_attention(8, 21504, _width(4096, 21504), _attention(32, 8, 128), _mamba2(8192, 128, 8)),
        ),
        ("MFMAMF", _some_attention(2, 512, _width(256, 512), _attention(4, 2, 64), _mamba2(512, 8, 2))),
    ),
    "granite-h": (  # Granite 4 H Small without its experts
        RECIPES["granitehybrid"],
        (
            4 * "MMMMMAMMMM",
            _some_attention(8, 6144, _width(4096, 6144), _attention(32, 8, 128), _mamba2(8192, 128, 1)),
        ),
        (2 * "MMA", _some_attention(2, 512, _width(256, 512), _attention(4, 2, 64), _mamba2(512, 8, 1))),
    ),
}
KINDS = tuple(_SHAPES)
