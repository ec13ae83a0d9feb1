"""What fits is chosen by a pure function: here over made-up devices and a made-up model."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import pytest

from leftoff.engine.choice import LoadChoice, LoadLimits, Room, choose
from leftoff.engine.needs import HOST, Needs

GIB = 1 << 30
WHOLE = 131072


@dataclass(frozen=True)
class MadeUp:
    """A model whose layers are spread evenly over its GPUs, as llama.cpp does: the last ones, and the output."""

    num_layers: int = 33
    layer: float = 0.5  # GiB
    experts: float = 0.0  # GiB of each layer
    kv: float = 0.25  # GiB of each layer, with the whole context
    buffers: float = 0.5  # GiB on each GPU that is used

    def on(self, *gpus: str) -> "Asked":
        return Asked(self, gpus)


@dataclass(frozen=True)
class Asked:
    model: MadeUp
    gpus: tuple[str, ...]

    def __call__(self, choice: LoadChoice) -> Needs:
        model, weights, context = self.model, {HOST: 0.0}, {HOST: 0.1}
        first = model.num_layers - choice.gpu_layers
        for gpu in self.gpus if choice.gpu_layers else ():
            weights[gpu], context[gpu] = 0.0, model.buffers
        for layer in range(model.num_layers):
            on_gpu = self.gpus and layer >= first
            gpu = self.gpus[(layer - first) * len(self.gpus) // choice.gpu_layers] if on_gpu else HOST
            weights[gpu] += model.layer
            weights[HOST if layer < choice.n_cpu_moe else gpu] += model.experts
            context[gpu] += model.kv * choice.num_cells / WHOLE
        return Needs(_bytes(weights), _bytes(context))


def _bytes(gibibytes: dict[str, float]) -> Counter[str]:
    return Counter({name: int(size * GIB) for name, size in gibibytes.items()})


def chosen(
    model: MadeUp, ram: float, *gpus: float, cells: int = WHOLE, fewest: int = 8192, layers: int | None = None
) -> LoadChoice:
    """The choice for GPUs with this many free GiB; `layers` were asked for."""
    free = {f"CUDA{index}": int(size * GIB) for index, size in enumerate(gpus)}
    num_layers = model.num_layers if layers is None else layers
    limits = LoadLimits(
        LoadChoice(num_layers, 0, cells),
        fewest_layers=0 if layers is None else layers,
        most_cpu_moe=model.num_layers if model.experts and layers is None else 0,
        fewest_cells=min(cells, fewest),
    )
    return choose(limits, Room(int(ram * GIB), free, dict.fromkeys(free, GIB)), model.on(*free))


DENSE, SPARSE = MadeUp(), MadeUp(experts=1.0)  # 16.5 GiB, and 49.5 GiB; both with 8.25 GiB of KV


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (chosen(DENSE, 64, 80), LoadChoice(33, 0, WHOLE)),
        (chosen(DENSE, 64, 26.25), LoadChoice(33, 0, WHOLE)),  # 16.5 + 8.25 + 0.5 + 1 to leave
        (chosen(DENSE, 64, 24), LoadChoice(33, 0, 95232)),
        (chosen(DENSE, 64, 18.6), LoadChoice(33, 0, 9472)),
        (chosen(DENSE, 64, 16), LoadChoice(28, 0, 9216)),
        (chosen(DENSE, 64, 8), LoadChoice(12, 0, 21760)),
        (chosen(DENSE, 64, 1), LoadChoice(0, 0, WHOLE)),
        (chosen(DENSE, 26, 1), LoadChoice(0, 0, 73728)),
        (chosen(DENSE, 64, 24, 24), LoadChoice(33, 0, WHOLE)),
        (chosen(DENSE, 64, 12, 12), LoadChoice(33, 0, 61440)),
        (chosen(SPARSE, 128, 80), LoadChoice(33, 0, WHOLE)),
        (chosen(SPARSE, 128, 24), LoadChoice(33, 28, 15872)),
        (chosen(SPARSE, 128, 18), LoadChoice(32, 33, 8192)),
        (chosen(SPARSE, 128, 12), LoadChoice(20, 33, 13056)),
    ],
)
def test_the_best_that_fits(choice: LoadChoice, expected: LoadChoice) -> None:
    assert choice == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (chosen(DENSE, 64), LoadChoice(33, 0, WHOLE)),  # half of what 16.5 GiB of weights leave is for the context
        (chosen(DENSE, 24), LoadChoice(33, 0, 57856)),
        (chosen(DENSE, 16), LoadChoice(33, 0, 8192)),  # the weights alone are more: they are read from the file again
        (chosen(DENSE, 16, cells=4096), LoadChoice(33, 0, 4096)),
    ],
)
def test_without_a_gpu_only_the_context_is_chosen(choice: LoadChoice, expected: LoadChoice) -> None:
    assert choice == expected


@pytest.mark.parametrize("gpu", [2, 10, 16, 24])
def test_what_was_asked_for_is_never_changed(gpu: float) -> None:
    assert chosen(DENSE, 64, gpu, cells=100_000, fewest=100_000).num_cells == 100_000
    assert chosen(SPARSE, 64, gpu, layers=20).gpu_layers == 20
    assert chosen(SPARSE, 64, gpu, layers=20).n_cpu_moe == 0
    everything = chosen(SPARSE, 64, gpu, cells=WHOLE, fewest=WHOLE, layers=33)
    assert everything == LoadChoice(33, 0, WHOLE)


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_fits_and_nothing_better_does(seed: int) -> None:
    random = Random(seed)
    model = MadeUp(
        num_layers=random.randint(2, 60),
        layer=random.uniform(0.05, 1),
        experts=random.choice([0, random.uniform(0.1, 2)]),
        kv=random.uniform(0.01, 1),
    )
    gpu, ask = random.uniform(2, 60), model.on("CUDA0")
    room = Room(4096 * GIB, {"CUDA0": int(gpu * GIB)}, {"CUDA0": GIB})
    choice = chosen(model, 4096, gpu)

    def fits(**changes: int) -> bool:
        return room.gpus_hold(ask(replace(choice, **changes)))

    assert fits()
    if choice.num_cells < WHOLE:
        assert not fits(num_cells=choice.num_cells + 256)
    if choice.n_cpu_moe:
        assert not fits(n_cpu_moe=choice.n_cpu_moe - 1, num_cells=8192, gpu_layers=model.num_layers)
    if choice.gpu_layers < model.num_layers:
        assert not fits(gpu_layers=choice.gpu_layers + 1, num_cells=8192)


def test_a_context_that_cannot_even_be_tried_does_not_fit() -> None:
    """A recurrent state is allocated even for a trial: where there is no room for it, llama.cpp makes no context."""

    def ask(choice: LoadChoice) -> Needs | None:
        return None if choice.gpu_layers > 7 else Needs(Counter(), Counter())

    limits = LoadLimits(LoadChoice(33, 0, WHOLE), fewest_layers=0, most_cpu_moe=0, fewest_cells=8192)
    assert choose(limits, Room(GIB, {"CUDA0": GIB}, {"CUDA0": 0}), ask) == LoadChoice(7, 0, WHOLE)
