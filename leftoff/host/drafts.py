"""The drafter of a model, by the settings and by what was measured: token log, MTP layer, EAGLE-3 head, draft model."""

import dataclasses
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from leftoff.cache.cache import Cache
from leftoff.config import Settings
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesses, HeadGuesser
from leftoff.engine import gguf
from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import ARCHITECTURE as EAGLE
from leftoff.engine.eagle import EagleContext, eagle_problem, head_context
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.fit import Beside, shortage_explained
from leftoff.engine.measure import measure_batches, measure_change, measure_head
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import mtp_problem

logger = logging.getLogger("leftoff.drafts")

_HEADS = ("dflash", "gemma4-assistant")  # architectures that draft for a model and cannot run alone
_MIN_GAIN = 1.5  # if every token of a draft were right; half of that is often lost
_MAX_OTHERS = 0.01  # of the tokens that both models have: fine-tuned models rename a few that nobody else uses


def make_drafter(
    engine: LlamaEngine, cache: Cache, settings: Settings, cache_for: Callable[[LlamaEngine], Cache]
) -> Drafter | None:
    """None where no draft can pay, or is not wanted. With a grid a reply is decoded one token at a time, always."""
    if settings.draft == "off" or settings.deterministic:
        return None
    if not engine.memory.can_draft:
        _say_none(settings, f"{engine.memory.kind.value} memory takes no drafts")
        return None
    seconds = measure_batches(engine)
    times = BatchTimes(seconds, measure_change(engine, seconds))
    if settings.draft == "auto" and times.best_gain() < _MIN_GAIN:
        _say_none(settings, f"the best batch is {times.best_gain():.2f} times as fast as single tokens; --draft model")
        return None
    found = beside(settings, engine.model.settings, engine.settings)
    if found is not None and found.is_head:
        engine.head = EagleContext(engine.context, engine.memory.replaced, found.path, found.model)
    head = _head_guesses(engine, times, settings)
    if settings.draft == "mtp" and head is None:
        problem = mtp_problem(engine.model.library, engine.model.path) or "there is no memory for a second context"
        logger.warning("--draft mtp: nothing is drafted: %s", problem)
        return None
    guesses, model = [head] if head is not None else [], _open_draft_model(engine, cache, found, cache_for)
    if model is not None:
        step_ms = model.cache.costs.step_ms
        logger.info("%s guesses a token in %.2f ms, the model takes %.2f", settings.model_draft, step_ms, times.ms)
        guesses.append(Guesses(model, times, step_ms))
    return Drafter(
        times,
        decodes_again=engine.memory.has_state,
        most_drafted=settings.draft_max,
        known=cache.tiers.known_tokens,
        guesses=guesses,
        has_trails=settings.draft in ("auto", "tree"),
        model=model,
    )


def uses_mtp(settings: Settings) -> bool:
    """Whether the model is loaded with its next-token layer, for drafts. A head that is given drafts instead of it."""
    if settings.draft not in ("auto", "mtp") or settings.deterministic:
        return False
    if settings.draft == "auto" and settings.model_draft and _architecture(_draft_path(settings)) == EAGLE:
        return False
    return not mtp_problem(load_library(), Path(settings.model))


def beside(settings: Settings, model: ModelSettings, context: ContextSettings) -> Beside | None:
    """The draft model or head that is loaded with a model, if any. Raises `ModelError` if it does not fit."""
    if settings.draft == "model" and not settings.model_draft:
        raise ModelError("--draft model: give the draft model with --model-draft FILE")
    if not settings.model_draft or settings.draft not in ("auto", "model") or settings.deterministic:
        return None
    path = _draft_path(settings)
    is_head = _architecture(path) == EAGLE
    if is_head and (problem := eagle_problem(load_library(), Path(settings.model), path)):
        raise ModelError(f"--model-draft {path}: {problem}: give the head that was trained for this model")
    if problem := _head_problem(path) or vocabulary_problem(Path(settings.model), path):
        raise ModelError(f"--model-draft {path}: {problem}: give a smaller model of the same family")
    # all of it where the model has layers: of experts, or with rules for single tensors, it is not
    where = ModelSettings(-1 if model.gpu_layers else 0, model.devices, mmap=model.mmap, mlock=model.mlock)
    if is_head:
        return Beside(path, where, head_context(context), is_head=True)
    # adapters and control vectors are of the model alone
    return Beside(path, where, dataclasses.replace(context, num_sequences=1, grid=None, loras=(), control=None))


def vocabulary_problem(model: Path, draft: Path) -> str:
    """Why the tokens of two model files are not the same; empty if they are. One may have some more at the end."""
    try:
        texts = [[*gguf.vocabulary_texts(path)] for path in (model, draft)]
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"
    except gguf.DAMAGED as error:
        return f"the vocabulary cannot be read ({error})"
    sizes = [len(each) for each in texts]
    if not all(sizes):
        return f"{draft if sizes[0] else model} has no vocabulary"
    if min(sizes) < (1 - _MAX_OTHERS) * max(sizes):
        return f"it has {sizes[1]:,} tokens, and the model has {sizes[0]:,}"
    others = [token for token, ours, theirs in zip(count(), *texts, strict=False) if ours != theirs]
    if len(others) > _MAX_OTHERS * min(sizes):
        ours, theirs = (each[others[0]].decode("utf-8", "replace") for each in texts)
        return f"{len(others):,} of its tokens are others: {others[0]} is {theirs!r}, and {ours!r} in the model"
    return ""


def _head_problem(path: Path) -> str:
    """Why a file is no model by itself; llama.cpp may abort on it."""
    if (architecture := _architecture(path)) in _HEADS:
        return f"it is a {architecture} head, which reads the model's hidden states, and is not supported"
    return ""


def _draft_path(settings: Settings) -> Path:
    return Path(settings.model_draft).expanduser()


def _architecture(path: Path) -> str:
    """Empty if it cannot be read: who loads it tells why."""
    with suppress(OSError, *gguf.DAMAGED):
        return gguf.read_header(path).architecture
    return ""


def _say_none(settings: Settings, why: str) -> None:
    if settings.model_draft:
        logger.warning("--model-draft %s: nothing is drafted: %s", settings.model_draft, why)


def _head_guesses(engine: LlamaEngine, times: BatchTimes, settings: Settings) -> Guesses | None:
    """Drafts of the model's next-token layer or head, if there is one. If they cannot pay, its context is freed."""
    if engine.head is None:
        return None
    measured = measure_head(engine)
    step_ms = measured.step_ms
    if settings.draft == "auto" and times.best_gain(step_ms / times.ms) < _MIN_GAIN:
        logger.info("no drafts of hidden states: a token is guessed in %.2f ms, and takes %.2f", step_ms, times.ms)
        engine.close_head()
        return None
    return Guesses(HeadGuesser(engine.head), times, step_ms, measured.wake_ms)


def _open_draft_model(
    engine: LlamaEngine, cache: Cache, found: Beside | None, cache_for: Callable[[LlamaEngine], Cache]
) -> DraftModel | None:
    """Loads the draft model, if there is one; from then on it sleeps, wakes and closes with the engine."""
    if found is None or found.is_head:
        return None
    with shortage_explained(found.path, found.model, found.context):
        model = Model(found.path, found.model, may_sleep=engine.model.may_sleep)
    try:
        num_cells = min(engine.memory.num_cells, model.trained_context)
        engine.draft = LlamaEngine(model, dataclasses.replace(found.context, num_cells=num_cells))
    except BaseException:
        model.close()
        raise
    if not engine.draft.memory.can_draft:
        kind = engine.draft.memory.kind.value
        raise EngineError(f"--model-draft {found.path}: {kind} memory cannot take guesses back: give another model")
    return DraftModel(engine.draft, cache_for(engine.draft), engine.model.vocabulary.size, cache.lock)
