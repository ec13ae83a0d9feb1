"""Reckons what a model of the catalogue would take, and how much context it would have, before there is a file.

`choice.py` chooses as it does for a file that is here; only the sizes come from the catalogue's numbers rather than
from llama.cpp, and are somewhat larger or smaller than what a build of it takes.
"""

from collections import Counter
from dataclasses import dataclass

from leftoff.engine.choice import FEWEST_CELLS, MOST_CELLS, LoadChoice, LoadLimits, Room, choose
from leftoff.engine.needs import HOST, Needs
from leftoff.hub.catalogue import CatalogueModel

_KV_BITS = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 8.5,
    "q5_1": 6,
    "q5_0": 5.5,
    "q4_1": 5,
    "q4_0": 4.5,
    "iq4_nl": 4.5,
}
_SEQUENCES, _PARKED = 5, 4  # the slots of a server, and the engine's scratch sequence; on a GPU, parked ones too
_MICRO_BATCH = 512
_WIDTHS = 24  # of a token, that are computed at the same time
_PROJECTOR_BYTES = 1 << 30  # about as many as the largest of the catalogue


@dataclass(frozen=True)
class Reckoned:
    """The choice that fits best, what it takes, and whether it fits at all."""

    choice: LoadChoice
    needs: Needs
    fits: bool


def reckon(model: CatalogueModel, file_bytes: int, room: Room, kv_type: str = "f16") -> Reckoned:
    """What would be chosen for a file of this size on a machine with this room."""
    room = room.beside(_PROJECTOR_BYTES) if model.projector else room
    cells = min(model.context, MOST_CELLS)
    whole = LoadChoice(model.layers + 1 if room.gpus else 0, 0, cells)
    limits = LoadLimits(
        whole,
        fewest_layers=0,
        most_cpu_moe=model.layers if model.experts and room.gpus else 0,
        fewest_cells=min(cells, FEWEST_CELLS),
    )
    sizes = _Sizes(model, file_bytes, room, _KV_BITS[kv_type] / 8)
    choice = choose(limits, room, sizes.needs)
    needs = sizes.needs(choice)
    return Reckoned(choice, needs, room.gpus_hold(needs) and needs.total(HOST) <= room.ram)


class _Sizes:
    """Spreads weights and context over the layers evenly, and over the GPUs by what is free on them."""

    def __init__(self, model: CatalogueModel, file_bytes: int, room: Room, value_bytes: float) -> None:
        self._model, self._room, self._file_bytes, self._value_bytes = model, room, file_bytes, value_bytes
        self._num_sequences = _SEQUENCES + (_PARKED if room.gpus else 0)
        per_parameter = file_bytes / (model.parameters * 1e9)
        self._embeddings = per_parameter * model.vocabulary * model.embedding
        self._experts = per_parameter * model.experts * 1e9 / model.layers  # of a layer
        body = file_bytes - self._embeddings * (1 if model.tied else 2)
        self._dense = body / model.layers - self._experts

    def needs(self, choice: LoadChoice) -> Needs:
        num_layers = self._model.layers
        on_gpu = min(choice.gpu_layers, num_layers)  # the last ones
        with_experts = num_layers - max(num_layers - on_gpu, choice.n_cpu_moe)
        weights = on_gpu * self._dense + with_experts * self._experts
        output = self._embeddings if choice.gpu_layers > num_layers else 0
        copied = output if self._model.tied else 0
        context = self._cells_bytes(choice.num_cells) + self._num_sequences * self._model.state
        computed = 4 * _MICRO_BATCH * (self._model.vocabulary + _WIDTHS * self._model.embedding)
        part = on_gpu / num_layers
        return Needs(
            self._spread(weights + output, self._file_bytes - weights - output + copied),
            self._spread(
                part * context + (computed if on_gpu else 0), (1 - part) * context + (0 if part == 1 else computed)
            ),
        )

    def _cells_bytes(self, num_cells: int) -> float:
        layers, values = self._model.attention
        window_layers, window_values, tokens = self._model.window
        window_cells = min(num_cells, self._num_sequences * tokens + _MICRO_BATCH)
        return self._value_bytes * (num_cells * layers * values + window_cells * window_layers * window_values)

    def _spread(self, on_gpus: float, in_ram: float) -> Counter[str]:
        gpus = self._room.gpus
        free = sum(gpus.values()) or 1
        spread = Counter({name: int(on_gpus * its / free) for name, its in gpus.items()})
        spread[HOST] = int(in_ram)
        return spread
