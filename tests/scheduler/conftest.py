"""Schedulers over real engines on tiny models."""

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from leftoff.cache.cache import Cache
from leftoff.cache.placement import Placement
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesser, Guesses, HeadGuesser
from leftoff.engine.adapter_file import LoraFile
from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model_settings import ModelSettings
from leftoff.scheduler.batcher import Limits
from leftoff.scheduler.scheduler import Scheduler
from tests.factory import model_path
from tests.factory.heads import head_path

_MAX_IDLE = 8
_idle: dict[tuple[object, ...], LlamaEngine] = {}


@contextmanager
def scheduler_for(
    architecture: str,
    *,
    slots: int = 4,
    spares: int = 0,
    ram_bytes: int = 1 << 30,
    num_cells: int = 8192,
    queue: int = 512,
    grid: int | None = None,
    micro_batch_tokens: int = 512,
    flash_attention: str = "auto",
    drafts: bool = False,
    mtp: bool = False,
    head: str = "",
    draft_model: str = "",
    draft_class: Callable[..., DraftModel] = DraftModel,
    loras: tuple[LoraFile, ...] = (),
) -> Iterator[Scheduler]:
    """With a grid, as a server with --deterministic. With drafts, as if a batch took as long as a single token.

    With `mtp`, all drafts are those of the model's next-token layer, with `head` those of an EAGLE-3 head of that kind,
    with `draft_model` those of such a model, unless there are `drafts` as well.
    """
    threads = 2 if grid else 1
    settings = ContextSettings(
        num_cells=num_cells,
        num_sequences=slots + spares,
        micro_batch_tokens=micro_batch_tokens,
        threads=threads,
        flash_attention=flash_attention,
        grid=grid,
        loras=loras,
    )
    with ExitStack() as engines:
        engine = engines.enter_context(empty_engine(architecture, settings, ModelSettings(mtp=mtp)))
        cache = Cache(engine.memory, num_slots=slots, budget_bytes=ram_bytes, placement=Placement(grid=grid))
        limits = Limits(queue=queue, at_once=1 if grid else slots)
        model = None
        if head:
            file = head_path(architecture, head)
            engine.head = EagleContext(engine.context, engine.memory.replaced, file, ModelSettings(gpu_layers=0))
            engines.callback(engine.close_head)
        if draft_model:
            engine.draft = engines.enter_context(empty_engine(draft_model, replace(settings, num_sequences=1)))
            engines.callback(setattr, engine, "draft", None)
            beside = Cache(engine.draft.memory, num_slots=1, budget_bytes=ram_bytes)
            model = draft_class(engine.draft, beside, engine.model.vocabulary.size, cache.lock)
        has_drafter = drafts or engine.head is not None or model is not None
        drafter = eager_drafter(engine, has_trails=drafts, model=model) if has_drafter else None
        yield Scheduler(engine, cache, limits, drafter)


@contextmanager
def empty_engine(
    architecture: str, settings: ContextSettings, model_settings: ModelSettings | None = None
) -> Iterator[LlamaEngine]:
    """One that an earlier test has left, if there is one like it: to open one takes longer than many a test."""
    key = (architecture, settings, model_settings)
    engine = _idle.pop(key, None)
    if engine is None:
        engine = LlamaEngine.open(model_path(architecture), settings, model_settings=model_settings)
    try:
        yield engine
        engine.memory.clear()
        engine.context.forget_cancel()
    except BaseException:
        engine.close()
        raise
    _idle[key] = engine
    if len(_idle) > _MAX_IDLE:
        _idle.pop(next(iter(_idle))).close()


@atexit.register
def _close_idle() -> None:
    for engine in _idle.values():
        engine.close()


class FreeBatches(BatchTimes):
    """Learns nothing from the times of this machine."""

    def saw(self, num_tokens: int, ms: float) -> None: ...


def eager_drafter(
    engine: LlamaEngine, *, has_trails: bool = True, model: DraftModel | None = None, most_drafted: int = 7
) -> Drafter:
    """Drafts whatever it finds: a batch of 64 tokens takes as long as one of a single token, and always will."""
    guessers: list[Guesser] = [HeadGuesser(engine.head)] if engine.head is not None else []
    if model is not None:
        guessers.append(model)
    times = FreeBatches({1: 1.0, 64: 1.0})
    return Drafter(
        times,
        decodes_again=engine.memory.has_state,
        most_drafted=most_drafted,
        guesses=[Guesses(guesser, times, 0.0) for guesser in guessers],
        has_trails=has_trails,
        model=model,
    )
