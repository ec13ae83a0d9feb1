"""How large the model is. Everything that depends on it asks here."""

from dataclasses import dataclass

VOCABULARY = 8192
EPSILON = 1e-6
ROPE_BASE = 100_000.0
CONVOLUTION = 4


@dataclass(frozen=True)
class Shape:
    """A Qwen3.5: every fourth layer has attention, the others a Gated DeltaNet."""

    width: int = 384
    num_layers: int = 12
    feed_forward: int = 896
    num_heads: int = 6
    num_kv_heads: int = 2
    head_size: int = 64
    num_delta_heads: int = 6
    delta_size: int = 64
    attention_interval: int = 4
    context: int = 8192

    @property
    def delta_width(self) -> int:
        return self.num_delta_heads * self.delta_size

    @property
    def rotated(self) -> int:
        """How many values of a head carry its position."""
        return self.head_size // 4

    def has_attention(self, layer: int) -> bool:
        return (layer + 1) % self.attention_interval == 0


# Small enough to train on a CPU in seconds, large enough for every part to be there.
MICRO = Shape(
    width=64,
    num_layers=4,
    feed_forward=128,
    num_heads=2,
    num_kv_heads=1,
    head_size=32,
    num_delta_heads=2,
    delta_size=32,
    context=512,
)
