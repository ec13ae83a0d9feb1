"""Vectors and scores of texts, by a second context over the weights of a model.

A text is decoded as one sequence, whose rows llama.cpp pools into one vector; a reranking model turns that into scores.
Nothing of a text is kept: the next batch begins with empty sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from leftoff.engine.batch import BatchBuffers, BatchPart
from leftoff.engine.binding import abi
from leftoff.engine.context import ContextSettings, create_context, floats
from leftoff.engine.errors import EngineError, InputError
from leftoff.engine.model import Model
from leftoff.types import Tokens

Vectors = npt.NDArray[np.float32]  # a row for each text

_MAX_WHOLE = 2048  # tokens of a text that must be computed at once: attention takes memory with its square
_MAX_TOKENS = 8192  # of one that need not: its cells take memory
_TOGETHER = 512
# In one batch: a recurrent model has a state for each. llama.cpp has one sequence more, and aborts unless the tokens of
# a batch are a multiple of them.
_MAX_TEXTS = 15


class Pooling(IntEnum):
    """How the rows of a text's tokens become one vector, in llama.cpp's numbers."""

    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4

    @classmethod
    def of(cls, name: str) -> "Pooling | None":
        """The pooling that `--pooling` calls so; None if the name is empty."""
        return cls[name.upper()] if name else None


@dataclass(frozen=True)
class Shape:
    """How many numbers a text gets, how many tokens it may have, and whether the numbers are scores, or a vector."""

    width: int
    max_tokens: int
    ranks: bool


class Embedder:
    """Owns the native context. Belongs to one thread, which should be the one that decodes with these weights."""

    def __init__(self, model: Model, threads: int, pooling: Pooling | None = None) -> None:
        """Without `pooling`, the model file says how, or the mean is taken."""
        if problem := model.library.problem_without(abi.EMBEDDING_FUNCTIONS):
            raise EngineError(problem)
        self.model = model
        self._dll = model.library.dll
        wanted = pooling if pooling is not None else _own_pooling(model)
        settings = _settings(model, threads, can_split=wanted is Pooling.LAST)
        with model.library.log.collected():  # it warns that a chat model has no pooling of its own
            self.handle: int | None = create_context(model.library, model.handle, model.path, settings, pooling=wanted)
        self.pooling = Pooling(self._dll.llama_pooling_type(self.handle))
        self._together = settings.micro_batch_tokens
        self._memory = self._dll.llama_get_memory(self.handle)
        self._batch = BatchBuffers(settings.batch_tokens)
        ranks = self.pooling is Pooling.RANK
        width = self._dll.llama_model_n_cls_out if ranks else self._dll.llama_model_n_embd
        self.shape = Shape(int(width(model.handle)), settings.batch_tokens, ranks)

    def close(self) -> None:
        if self.handle is not None:
            self._dll.llama_free(self.handle)
            self.handle = None

    def num_together(self, texts: Sequence[Tokens]) -> int:
        """How many of the first texts are computed in one batch. A long one is alone."""
        ends = np.cumsum([tokens.size for tokens in texts[:_MAX_TEXTS]])
        return max(1, int(np.searchsorted(ends, self._together, side="right")))

    def embed(self, texts: Sequence[Tokens]) -> Vectors:
        """The vectors of texts that make one batch."""
        self._batch.clear()
        for seq, tokens in enumerate(texts):
            if not 0 < tokens.size <= self.shape.max_tokens:
                raise InputError(f"text {seq} has {tokens.size} tokens: must be between 1 and {self.shape.max_tokens}")
            self.model.vocabulary.check(tokens)
            self._batch.add(BatchPart(seq, tokens, 0, int(tokens.size)), seq)
        if self._memory:
            self._dll.llama_memory_clear(self._memory, False)
        code = self._dll.llama_decode(self.handle, self._batch.struct())
        if code != 0:
            raise EngineError(f"llama.cpp could not embed (code {code}): {self.model.library.log.take_errors()}")
        self.model.check_intact()
        return np.stack([self._pooled(seq) for seq in range(len(texts))])

    def _pooled(self, seq: int) -> Vectors:
        address = self._dll.llama_get_embeddings_seq(self.handle, seq)
        if not address:
            raise EngineError(f"llama.cpp has no vector for text {seq}: {self.model.library.log.take_errors()}")
        return floats(address, self.shape.width).copy()


def _own_pooling(model: Model) -> Pooling:
    return Pooling(model.number("pooling_type")) or Pooling.MEAN  # 0 is none


def _settings(model: Model, threads: int, *, can_split: bool) -> ContextSettings:
    """How large the context is. If a text can be split, it may be longer than what is computed at once."""
    longest = min(model.trained_context, _MAX_TOKENS if can_split else _MAX_WHOLE)
    longest -= longest % (_MAX_TEXTS + 1)
    return ContextSettings(
        num_cells=longest,
        num_sequences=_MAX_TEXTS,
        batch_tokens=longest,
        micro_batch_tokens=min(longest, _TOGETHER) if can_split else longest,
        threads=threads,
        flash_attention="off",  # with it, neighbours in a batch change a vector in its fourth digit
    )
