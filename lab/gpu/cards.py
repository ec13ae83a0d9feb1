"""Which model fits which card, with how much context: `python -m lab.gpu.cards` prints the table of the README.

It needs neither cards nor weights. llama.cpp is given a file with the published sizes of a model and asked what its
contexts take, on the CPU's backend, whose buffers are about as large as a GPU's; then the code of `--fit` chooses for a
card of so many GiB. It tells nothing about speed.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.gpu.random_model import write_empty_model
from lab.gpu.shapes import PUBLISHED
from leftoff.engine.choice import LoadChoice, LoadLimits, Room, choose
from leftoff.engine.context import ContextSettings
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.needs import Needs, Trial

_GB, _GIB = 10**9, 1 << 30
_NUM_SEQUENCES = 8  # the default on a GPU: four slots, four parked
_MOST_CELLS, _FEWEST_CELLS = 1 << 17, 8192
_TAKEN = _GIB // 2  # of a card, by its driver
_MARGIN = _GIB  # --fit-target
_CARD = "card"
_KV_TYPES = ("f16", "q8_0")


@dataclass(frozen=True)
class Row:
    """A model for a card of so many GiB. The sizes are those of its file, and of the embeddings if they stay in RAM."""

    card: int
    model: str
    quant: str
    file_gb: float
    embeddings_gb: float = 0.0


ROWS = (
    Row(8, "Qwen3.5-4B", "Q4_K_M", 2.7),
    Row(12, "Qwen3.5-9B", "Q4_K_M", 5.7, 0.6),
    Row(16, "gpt-oss-20b", "MXFP4", 12.1, 0.6),
    Row(24, "Qwen3.6-27B", "Q4_K_M", 16.8, 0.7),
    Row(24, "Qwen3.6-35B-A3B", "Q4_K_M", 21.4, 0.3),
    Row(32, "Qwen3.6-27B", "Q6_K", 22.5, 1.0),
)


def markdown(row: Row) -> str:
    """A row of the table. What is less than the most is told in thousands."""
    shown = (context if context == _MOST_CELLS else context // 1000 * 1000 for context in contexts(row))
    return f"| {row.card} GB | {row.model}, {row.quant} | {row.file_gb} GB | {' | '.join(f'{n:,}' for n in shown)} |"


def contexts(row: Row) -> list[int]:
    """The tokens of context that `--fit` would choose for each KV type, with all layers on the card."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.gguf"
        write_empty_model(path, PUBLISHED[row.model])
        with closing(Trial(path, ModelSettings())) as trial:
            return [_context(row, _asking(row, trial, kv_type)) for kv_type in _KV_TYPES]


def _asking(row: Row, trial: Trial, kv_type: str) -> Callable[[LoadChoice], Needs]:
    weights = {_CARD: int((row.file_gb - row.embeddings_gb) * _GB)}

    @cache
    def ask(choice: LoadChoice) -> Needs:
        settings = ContextSettings(choice.num_cells, _NUM_SEQUENCES, kv_type=kv_type)
        needs = trial.needs(settings)
        assert needs, f"llama.cpp makes no context of {settings}"
        return Needs(weights, {_CARD: sum(needs.context.values())})

    return ask


def _context(row: Row, ask: Callable[[LoadChoice], Needs]) -> int:
    everything = LoadChoice(PUBLISHED[row.model].num_layers, 0, _MOST_CELLS)
    limits = LoadLimits(everything, everything.gpu_layers, 0, _FEWEST_CELLS)
    room = Room(0, {_CARD: row.card * _GIB - _TAKEN}, {_CARD: _MARGIN})
    choice = choose(limits, room, ask)
    assert room.gpus_hold(ask(choice)), f"{row} does not fit"
    return choice.num_cells


if __name__ == "__main__":
    for each in ROWS:
        print(markdown(each))
