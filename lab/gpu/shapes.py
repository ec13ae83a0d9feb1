"""The random models of four kinds of memory, in two sizes: which architecture, how wide, how many layers.

The recipes are those of the test models. Sizes are other: kernels for GPUs want heads of 64 and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.factory.architectures import RECIPES, Recipe
from tests.factory.cache import metadata_of
from tests.factory.gguf import Value
from tests.factory.parts import WINDOW, Scale, attention, body, experts
from tests.factory.vocabulary import small_vocabulary

SIZES, KINDS = ("8b", "small"), ("hybrid", "dense", "window", "moe")
_NUM_TOKENS = {"8b": 151936, "small": 4096}
_CONTEXT = 262144

_QWEN3 = Recipe("qwen3", lambda scale: body(scale, layers=4) | attention(scale))
_QWEN3_MOE = Recipe("qwen3moe", lambda scale: body(scale, layers=4) | attention(scale) | experts(scale))


@dataclass(frozen=True)
class Shape:
    """One model. `sizes` stand without the architecture's prefix, and replace those of the recipe."""

    recipe: Recipe
    num_tokens: int
    num_layers: int
    sizes: Mapping[str, Value]

    def with_layers(self, num_layers: int) -> "Shape":
        return replace(self, num_layers=num_layers)

    @property
    def metadata(self) -> dict[str, Value]:
        """The keys of the file. The vocabulary is the small one, filled up with tokens that no text contains."""
        name = self.recipe.architecture
        words = small_vocabulary().metadata()
        tokens, types = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.token_type"]
        assert isinstance(tokens, list)
        assert isinstance(types, list)
        num_missing = self.num_tokens - len(tokens)
        own: dict[str, Value] = {**self.sizes, "vocab_size": self.num_tokens, "block_count": self.num_layers}
        return (
            metadata_of(self.recipe, Scale(context_length=_CONTEXT))
            | {
                "tokenizer.ggml.tokens": [*map(str, tokens), *(f"unused{number}" for number in range(num_missing))],
                "tokenizer.ggml.token_type": [*map(int, types), *[1] * num_missing],
            }
            | {f"{name}.{key}": value for key, value in own.items()}
        )


def shape(kind: str, size: str) -> Shape:
    """A model of one of `KINDS` in one of `SIZES`. `8b` has about eight billion weights."""
    recipe, large, small = _SHAPES[kind]
    num_layers, sizes = large if size == "8b" else small
    return Shape(recipe, _NUM_TOKENS[size], num_layers, sizes)


def _attention(num_heads: int, num_kv_heads: int, head: int) -> dict[str, Value]:
    return {
        "attention.head_count": num_heads,
        "attention.head_count_kv": num_kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "rope.freq_base": 1e6,
    }


def _width(embedding: int, feed_forward: int) -> dict[str, Value]:
    return {"embedding_length": embedding, "feed_forward_length": feed_forward}


def _delta_net(inner: int, rank: int, groups: int) -> dict[str, Value]:
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


def _window(window: int, pattern: int) -> dict[str, Value]:
    return {"attention.sliding_window": window, "attention.sliding_window_pattern": pattern}


def _experts(count: int, used: int, feed_forward: int) -> dict[str, Value]:
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": feed_forward}


_Sized = tuple[int, Mapping[str, Value]]
_SHAPES: dict[str, tuple[Recipe, _Sized, _Sized]] = {
    "hybrid": (
        RECIPES["qwen35"],
        (32, _width(4096, 12288) | _attention(16, 4, 256) | _delta_net(4096, 32, 16)),
        (4, _width(256, 512) | _attention(2, 1, 128) | _delta_net(256, 2, 1)),
    ),
    "dense": (
        _QWEN3,
        (36, _width(4096, 12288) | _attention(32, 8, 128)),
        (4, _width(256, 512) | _attention(4, 2, 64)),
    ),
    "window": (
        RECIPES["gemma3"],
        (36, _width(3840, 15360) | _attention(16, 8, 256) | _window(1024, 6)),
        (4, _width(256, 512) | _attention(4, 2, 64) | _window(WINDOW, 2)),
    ),
    "moe": (
        _QWEN3_MOE,
        (48, _width(2048, 6144) | _attention(32, 4, 128) | _experts(32, 8, 768)),
        (4, _width(256, 512) | _attention(4, 2, 64) | _experts(8, 2, 128)),
    ),
}
