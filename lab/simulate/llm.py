"""What a model's memory weighs and how fast things move: all that a simulation knows of a model.

Sizes follow from the layers, as llama.cpp keeps them: attention in 16 bits, states in 32. The speeds are round guesses
of one machine: say your own. Models without attention are not here: the schemes to compare with keep blocks of it.
"""

from dataclasses import dataclass

from leftoff.engine.memory.base import MemoryKind

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Llm:
    """Bytes and speeds of one model on one machine."""

    name: str
    bytes_per_token: int
    snapshot_bytes: int
    attention_share: float = 0.0  # compute of a token that grows with each token before it, relative to the rest
    prefill_tokens_per_s: float = 1000.0
    load_bytes_per_s: float = 15e9  # from RAM into the engine
    save_bytes_per_s: float = 4e9  # from the engine into RAM
    disk_bytes_per_s: float = 3e9

    @property
    def kind(self) -> MemoryKind:
        return MemoryKind.HYBRID if self.snapshot_bytes else MemoryKind.ATTENTION

    def ttft_ms(self, num_tokens: int, ram_bytes: int, disk_bytes: int, saved_bytes: int) -> float:
        """Making way, loading, then reading. Waiting for other requests is left out."""
        loading = ram_bytes / self.load_bytes_per_s + disk_bytes / self.disk_bytes_per_s
        return 1000 * (saved_bytes / self.save_bytes_per_s + loading + num_tokens / self.prefill_tokens_per_s)


LLMS = {
    llm.name: llm
    for llm in (
        Llm("qwen3.5-35b-a3b", 20 * _KIB, int(62.8 * _MIB), 1.8e-5),
        Llm("qwen3-next-80b-a3b", 24 * _KIB, int(75.4 * _MIB), 1.8e-5, 500.0),
        Llm("leftoff-tiny", 1560, 1_000_000, 1e-4, 3000.0),
        Llm("qwen3-8b", 144 * _KIB, 0, 1.8e-5),
    )
}
