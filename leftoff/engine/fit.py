"""Fits a model to the free memory before it is loaded, and explains where memory was short.

What was asked for is kept; `choice.py` chooses what was left open, and `needs.py` tells what a choice takes.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from leftoff.engine.binding.library import load_library
from leftoff.engine.choice import FEWEST_CELLS, MOST_CELLS, LoadChoice, LoadLimits, Room, choose
from leftoff.engine.context import ContextSettings
from leftoff.engine.devices import available_ram, free_bytes
from leftoff.engine.errors import EngineError, ModelError, OutOfMemoryError
from leftoff.engine.model_header import model_header
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.needs import HOST, Needs, Trial
from leftoff.units import show_bytes

MARGIN_BYTES = 1 << 30  # left free on a GPU, unless another margin is asked for
_SPLIT_LAYERS = ("row", "tensor")  # split modes in which every GPU holds a part of every layer


@dataclass(frozen=True)
class Wishes:
    """Context, layers and margins as the user gave them, or how far they may be chosen."""

    num_cells: int  # 0: to be chosen
    most_cells: int = MOST_CELLS
    fewest_cells: int = FEWEST_CELLS
    chooses_layers: bool = True
    margins: tuple[int, ...] = (MARGIN_BYTES,)  # bytes to leave free on each GPU; the last is for all others too


@dataclass(frozen=True)
class Beside:
    """A draft model that is loaded too, with a context of as many cells, or of as many as it is trained for.

    Or an EAGLE-3 head, which `is_head`: it has as many cells as the model in any case.
    """

    path: Path
    model: ModelSettings
    context: ContextSettings
    is_head: bool = False


@dataclass(frozen=True)
class Fit:
    """The settings to load a model with, and a line for the start screen: the choice and the memory it takes."""

    model: ModelSettings
    num_cells: int  # 0: nothing was chosen
    line: str = ""
    needs: Mapping[str, int] = field(default_factory=dict)  # bytes on each device, RAM among them
    room: Mapping[str, int] = field(default_factory=dict)  # that may be used there


def fit_model(
    path: Path,
    model: ModelSettings,
    context: ContextSettings,
    wishes: Wishes,
    known_room: Mapping[str, int] | None = None,
    *,
    beside_bytes: int = 0,
    draft: Beside | None = None,
) -> Fit:
    """Chooses what the wishes leave open. Raises `OutOfMemoryError` if RAM, as much as is free, cannot hold it.

    Of devices in `known_room`, so many bytes may be used; of others, what is free less the margins. `beside_bytes` are
    left free for a projector on the first GPU, or in RAM if there is none; what a `draft` model takes counts as the
    model's own. Of a model that llama.cpp cannot examine nothing is chosen: loading it will tell why.
    """
    if model.split_mode in _SPLIT_LAYERS:
        return Fit(model, wishes.num_cells, f"nothing was chosen: --split-mode {model.split_mode} splits every layer")
    try:
        examiner = _Examiner(path, model, context, draft)
    except ModelError:
        return Fit(model, wishes.num_cells)
    with closing(examiner):
        room = examiner.room(wishes.margins, known_room or {}).beside(beside_bytes)
        limits = _limits(examiner.whole, model, wishes)
        choice = choose(limits, room, examiner.ask)
        needs = examiner.ask(choice)
        if needs is None:
            return Fit(model, wishes.num_cells)
        _refuse_what_ram_cannot_hold(needs, room, model, choice)
        return Fit(
            examiner.settings(choice),
            choice.num_cells,
            _line(examiner.whole.num_layers, limits.largest, choice, needs, room),
            {device: needs.total(device) for device in (HOST, *room.gpus)},
            {HOST: room.ram} | {name: free - room.margins[name] for name, free in room.gpus.items()},
        )


@contextmanager
def shortage_explained(path: Path, model: ModelSettings, context: ContextSettings) -> Iterator[None]:
    """Adds to an `OutOfMemoryError` what is needed, what is free, and the flags that help."""
    try:
        yield
    except OutOfMemoryError as error:
        told = "Give a smaller --ctx, or a smaller model"
        with suppress(EngineError), closing(_Examiner(path, model, context)) as examiner:
            room = examiner.room((0,), {})
            needs = examiner.ask(LoadChoice(model.gpu_layers, model.n_cpu_moe, context.num_cells))
            told = f"It needs {_shown(needs, room)}. {_ways_out(room)}" if needs else _ways_out(room)
        raise OutOfMemoryError(f"{error}. {told}") from error


class _Examiner:
    """Asks llama.cpp what a choice takes. Keeps all answers, and the model that was asked last."""

    def __init__(self, path: Path, model: ModelSettings, context: ContextSettings, draft: Beside | None = None) -> None:
        self._path, self._model, self._context, self._draft = path, model, context, draft
        self._answers: dict[LoadChoice, Needs | None] = {}
        self._header = model_header(path)
        self._asked = model
        self._trial = self.whole = Trial(path, model, self._header)
        try:
            self._beside = Trial(draft.path, draft.model) if draft is not None else None
        except ModelError:
            self._trial.close()
            raise

    def close(self) -> None:
        self._trial.close()
        if self._beside is not None:
            self._beside.close()

    def room(self, margins: Sequence[int], known: Mapping[str, int]) -> Room:
        """The free memory, with the trial in it: a GPU needs some for whatever it computes."""
        library = load_library()
        names = {device.name: device for device in self._model.used_devices(library)}
        free = {name: known[name] if name in known else free_bytes(library, names[name]) for name in names}
        kept = {name: 0 if name in known else margins[min(at, len(margins) - 1)] for at, name in enumerate(free)}
        return Room(known[HOST] if HOST in known else available_ram(), free, kept)

    def settings(self, choice: LoadChoice) -> ModelSettings:
        is_whole = self._model.gpu_layers < 0 and choice.gpu_layers in (self._model.gpu_layers, self.whole.num_layers)
        gpu_layers = self._model.gpu_layers if is_whole else choice.gpu_layers
        return dataclasses.replace(self._model, gpu_layers=gpu_layers, n_cpu_moe=choice.n_cpu_moe)

    def ask(self, choice: LoadChoice) -> Needs | None:
        if choice not in self._answers:
            self._answers[choice] = self._answer(choice)
        return self._answers[choice]

    def _answer(self, choice: LoadChoice) -> Needs | None:
        settings = self.settings(choice)
        if settings != self._asked:
            self._trial.close()
            self._asked, self._trial = settings, Trial(self._path, settings, self._header)
        needs = self._trial.needs(dataclasses.replace(self._context, num_cells=choice.num_cells))
        if needs is None or self._beside is None or self._draft is None:
            return needs
        if self._draft.is_head:
            context = dataclasses.replace(self._draft.context, num_cells=choice.num_cells)
            beside = self._beside.needs(context, self._trial)
        else:
            num_cells = min(choice.num_cells, self._beside.trained_context)
            beside = self._beside.needs(dataclasses.replace(self._draft.context, num_cells=num_cells))
        return needs + beside if beside is not None else None


def _limits(trial: Trial, model: ModelSettings, wishes: Wishes) -> LoadLimits:
    gpu_layers = trial.num_layers if model.gpu_layers < 0 else model.gpu_layers
    num_cells = wishes.num_cells or min(trial.trained_context, wishes.most_cells)
    is_open = wishes.chooses_layers and model.gpu_layers < 0
    has_open_experts = is_open and not model.cpu_moe and not model.n_cpu_moe
    return LoadLimits(
        LoadChoice(gpu_layers, model.n_cpu_moe, num_cells),
        fewest_layers=0 if is_open else gpu_layers,
        most_cpu_moe=trial.num_expert_layers if has_open_experts else model.n_cpu_moe,
        fewest_cells=num_cells if wishes.num_cells else min(num_cells, wishes.fewest_cells),
    )


def _refuse_what_ram_cannot_hold(needs: Needs, room: Room, model: ModelSettings, choice: LoadChoice) -> None:
    """Refused before loading: the system would not fail to give the memory, but end the process that uses it."""
    weights = 0 if model.mmap and not model.mlock else needs.weights[HOST]
    needed = weights + needs.context[HOST]
    if needed > room.ram:
        raise OutOfMemoryError(
            f"a context of {choice.num_cells:,} tokens needs {show_bytes(needed)} of RAM, and "
            f"{show_bytes(room.ram)} are free. {_ways_out(room)}; --fit off tries it anyway"
        )


def _line(num_layers: int, largest: LoadChoice, choice: LoadChoice, needs: Needs, room: Room) -> str:
    parts = []
    if room.gpus:
        on_gpus = f"all {num_layers}" if choice.gpu_layers >= num_layers else f"{choice.gpu_layers} of {num_layers}"
        parts.append(f"{on_gpus} layers on {', '.join(room.gpus)}")
    if choice.n_cpu_moe:
        parts.append(f"experts of {choice.n_cpu_moe} layer{'s' * (choice.n_cpu_moe > 1)} in RAM")
    instead = "" if choice.num_cells == largest.num_cells else f" instead of {largest.num_cells:,}"
    parts.append(f"{choice.num_cells:,} tokens of context{instead}")
    return f"{', '.join(parts)}: {_shown(needs, room)}"


def _shown(needs: Needs, room: Room) -> str:
    """`21.4 GiB on CUDA0 (weights 20.0 GiB; 23.1 GiB free), 1.0 GiB in RAM (…)`."""
    return ", ".join(
        f"{show_bytes(needs.total(name))} {'in' if name == HOST else 'on'} {name} "
        f"(weights {show_bytes(needs.weights[name])}; {show_bytes(free)} free)"
        for name, free in {**room.gpus, HOST: room.ram}.items()
    )


def _ways_out(room: Room) -> str:
    ways = ["a smaller --ctx", "--kv-type q8_0", *(["fewer --gpu-layers", "a higher --n-cpu-moe"] if room.gpus else [])]
    return f"Give {', '.join(ways)}, or a smaller model"
