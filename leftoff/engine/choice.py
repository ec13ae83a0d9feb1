"""Chooses layers, experts and context so that a model fits the free memory.

In this order: everything on the GPUs with the whole context; a smaller context; experts in RAM, layer by layer; layers
in RAM; then as much context as is left room for. Without a GPU only the context is chosen. Knows neither files nor
llama.cpp: it asks a function what a choice would take.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leftoff.engine.needs import HOST, Needs

FEWEST_CELLS, MOST_CELLS = 8192, 1 << 17  # of a context that is chosen, where the model has so many
_STEP = 256  # llama.cpp rounds a context up to a multiple of it


@dataclass(frozen=True)
class LoadChoice:
    """Layers on GPUs, layers whose experts are in RAM, and tokens of context."""

    gpu_layers: int
    n_cpu_moe: int
    num_cells: int


@dataclass(frozen=True)
class LoadLimits:
    """The choice with everything, and how far each part of it may be changed."""

    largest: LoadChoice
    fewest_layers: int
    most_cpu_moe: int
    fewest_cells: int


@dataclass(frozen=True)
class Room:
    """Free bytes of RAM and of each GPU, and the bytes to leave free there."""

    ram: int
    gpus: Mapping[str, int] = dataclasses.field(default_factory=dict)
    margins: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def gpus_hold(self, needs: Needs) -> bool:
        return all(needs.total(name) <= free - self.margins[name] for name, free in self.gpus.items())

    def ram_holds(self, needs: Needs) -> bool:
        """Half of what the weights leave is enough: the other half is for the prompt cache, and for others."""
        return needs.context[HOST] <= (self.ram - needs.weights[HOST]) // 2

    def beside(self, nbytes: int) -> "Room":
        """What a projector of so many bytes leaves: it goes to the first GPU, or to RAM if there is none."""
        if not self.gpus:
            return dataclasses.replace(self, ram=self.ram - nbytes)
        first = next(iter(self.gpus))
        return dataclasses.replace(self, margins={**self.margins, first: self.margins[first] + nbytes})


Ask = Callable[[LoadChoice], Needs | None]


def choose(limits: LoadLimits, room: Room, ask: Ask) -> LoadChoice:
    """The best choice that fits; if none does, the smallest."""
    choice = limits.largest

    def on_gpus(**changes: int) -> bool:
        needs = ask(dataclasses.replace(choice, **changes))
        return needs is not None and room.gpus_hold(needs)

    def everywhere(**changes: int) -> bool:
        needs = ask(dataclasses.replace(choice, **changes))
        return needs is not None and room.gpus_hold(needs) and room.ram_holds(needs)

    if everywhere():
        return choice
    choice = dataclasses.replace(choice, num_cells=limits.fewest_cells)
    if not on_gpus():
        experts = range(choice.n_cpu_moe, limits.most_cpu_moe + 1)
        choice = dataclasses.replace(choice, n_cpu_moe=_first(experts, lambda number: on_gpus(n_cpu_moe=number)))
        layers = range(choice.gpu_layers, limits.fewest_layers - 1, -1)
        choice = dataclasses.replace(choice, gpu_layers=_first(layers, lambda number: on_gpus(gpu_layers=number)))
    cells = range(limits.largest.num_cells, limits.fewest_cells, -_STEP)
    num_cells = _first([*cells, limits.fewest_cells], lambda number: everywhere(num_cells=number))
    return dataclasses.replace(choice, num_cells=num_cells)


def _first(numbers: Sequence[int], is_enough: Callable[[int], bool]) -> int:
    """The first that is enough, where all behind it are too; the last if none is."""
    start, end = 0, len(numbers) - 1
    while start < end:
        middle = (start + end) // 2
        if is_enough(numbers[middle]):
            end = middle
        else:
            start = middle + 1
    return numbers[start]
