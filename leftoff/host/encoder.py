"""A model that reads texts and writes none: an encoder, for vectors or for scores."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from leftoff.chat.work import Lanes
from leftoff.config import Settings
from leftoff.engine.embedder import Embedder, Pooling
from leftoff.engine.errors import ModelError
from leftoff.engine.model import Model
from leftoff.engine.model_header import model_header
from leftoff.host.embeddings import Embeddings
from leftoff.host.host import HostClosedError
from leftoff.machine import default_threads

Result = TypeVar("Result")


def is_encoder(path: Path) -> bool:
    """Whether the model of a file writes no text. Of a damaged one, loading tells what is wrong."""
    try:
        return not model_header(path).is_causal
    except ModelError:
        return False


class EncoderHost:
    """Owns the model and the thread that computes with it. Any thread may call it."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.settings = settings
        self.model = model
        self.name = settings.alias[0] if settings.alias else model.path.stem
        self.lanes = Lanes()
        self._thread = ThreadPoolExecutor(1, "leftoff-encoder")
        try:
            self._embedder = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            model.close()
            raise
        self.shape = self._embedder.shape
        self.context_tokens = self.shape.max_tokens
        self.embeddings = Embeddings(lambda: self._embedder, self._run)

    def close(self) -> None:
        self.lanes.close()
        self._thread.submit(self._embedder.close)
        self._thread.shutdown(cancel_futures=False)
        self.model.close()

    def require_alive(self) -> None:
        """Raises `HostClosedError` if it was closed."""
        if self._embedder.handle is None:
            raise HostClosedError(f"{self.name} is being closed: try again later")

    def _run(self, function: Callable[[], Result]) -> "Future[Result]":
        return self._thread.submit(function)

    def _open(self) -> Embedder:
        return Embedder(self.model, self.settings.threads or default_threads(), Pooling.of(self.settings.pooling))
