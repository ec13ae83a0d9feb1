"""The sources of drafts that are proved: each drafts whatever it can, for an engine and its cache."""

from dataclasses import replace
from pathlib import Path

from leftoff.cache.cache import Cache
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Reply
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model_settings import ModelSettings
from leftoff.hub.reference import default_model
from tests.factory import MTP, model_path
from tests.factory.heads import head_path
from tests.scheduler.conftest import eager_drafter

SOURCES = ("tree", "mtp", "eagle", "model")
_WRONG_EVERY = 5


class SometimesWrong(DraftModel):
    """Every fifth token that it guesses is another."""

    def guess(self, reply: Reply, most: int) -> list[int]:
        guessed = enumerate(super().guess(reply, most), reply.length)
        return [token if position % _WRONG_EVERY else (token + 1) % self._num_tokens for position, token in guessed]


def default_for(source: str) -> Path:
    """The embedded model, or one of which a next-token layer or a head is often right."""
    return model_path(MTP) if source in ("mtp", "eagle") else default_model()


def model_settings(source: str) -> ModelSettings:
    return ModelSettings(mtp=source == "mtp")


def drafter_of(source: str, engine: LlamaEngine, cache: Cache, most_drafted: int = 7) -> Drafter:
    """A draft model is the model itself, and wrong now and then. It is closed with the engine."""
    if source == "eagle":
        engine.head = EagleContext(engine.context, engine.memory.replaced, head_path(MTP), ModelSettings(gpu_layers=0))
    if source != "model":
        return eager_drafter(engine, has_trails=source == "tree", most_drafted=most_drafted)
    engine.draft = LlamaEngine.open(engine.model.path, replace(engine.settings, num_sequences=1))
    beside = Cache(engine.draft.memory, num_slots=1, budget_bytes=1 << 28)
    model = SometimesWrong(engine.draft, beside, engine.model.vocabulary.size, cache.lock)
    return eager_drafter(engine, has_trails=False, model=model, most_drafted=most_drafted)
