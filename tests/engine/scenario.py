"""Small moves that the engine tests are told in: prompts, reading, saving, loading, replying."""

import ctypes as C
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import Memory, Page, Share, Snapshot
from leftoff.engine.memory.staging import Staging
from leftoff.types import Logits, Tokens


@dataclass(frozen=True)
class Saved:
    """All of a sequence, as the engine saves it."""

    length: int
    pages: tuple[Page, ...]
    snapshot: Snapshot | None

    @property
    def content(self) -> list[bytes]:
        items: list[Page | Snapshot] = [*self.pages, *([self.snapshot] if self.snapshot else [])]
        return [view_of(item.data).tobytes() for item in items]


def prompt(engine: LlamaEngine, num_tokens: int, seed: int = 1) -> Tokens:
    rng = np.random.default_rng(seed)
    return rng.integers(0, engine.model.vocabulary.size, num_tokens).astype(np.int32)


def read(engine: LlamaEngine, seq: int, tokens: Tokens, chunk: int = 64) -> Logits:
    """Reads in chunks; the logits of the last token."""
    for start in range(0, tokens.size, chunk):
        (row,) = engine.decode([Work(seq, tokens[start : start + chunk])])
    return engine.logits(row).copy()


def reply(engine: LlamaEngine, seq: int, logits: Logits, num_tokens: int) -> tuple[list[int], list[Logits]]:
    """Greedy tokens, and the logits after each."""
    tokens, after = [], []
    for _ in range(num_tokens):
        tokens.append(int(logits.argmax()))
        logits = read(engine, seq, np.array(tokens[-1:], np.int32))
        after.append(logits)
    return tokens, after


def standing(engine: LlamaEngine) -> list[list[bytes]]:
    """The content of every sequence."""
    return [save(engine, seq).content for seq in range(engine.memory.num_sequences)]


def fork(memory: Memory, source: int, target: int, length: int) -> None:
    """`target` stands after the first `length` tokens of `source`; with one sequence for both it is cut back."""
    memory.restore(target, length, share=Share(source, length))


def save(engine: LlamaEngine, seq: int, page_tokens: int = 50) -> Saved:
    memory = engine.memory
    length = memory.length(seq)
    starts = range(0, length, page_tokens) if memory.kind.has_pages else ()
    pages = tuple(
        memory.save_pages(seq, [(start, min(length, start + page_tokens)) for start in starts]) if starts else ()
    )
    snapshot = memory.save_snapshot(seq) if memory.kind.has_snapshots else None
    return Saved(length, pages, snapshot)


def load(engine: LlamaEngine, seq: int, saved: Saved) -> None:
    pages = [page.whole() for page in saved.pages]
    engine.memory.restore(seq, saved.length, pages=pages, snapshot=saved.snapshot)


def cold(engine: LlamaEngine, tokens: Tokens, num_reply: int = 0) -> tuple[Logits, list[int], list[Logits]]:
    """What an engine that never stopped says: the measure of every other test. Leaves the engine empty."""
    for seq in range(engine.memory.num_sequences):
        engine.memory.drop(seq)
    logits = read(engine, 0, tokens)
    replied, after = reply(engine, 0, logits, num_reply)
    engine.memory.drop(0)
    return logits, replied, after


@contextmanager
def with_locked_memory(engine: LlamaEngine, nbytes: int, patience_s: float = 0.5) -> Iterator[LlamaEngine]:
    """State passes through so much memory that counts as page-locked, as with a GPU."""
    before = engine.context.staging
    engine.context.staging = Staging(engine.context.arena, ordinary, nbytes, patience_s)
    yield engine
    engine.context.staging.close()
    engine.context.staging = before


def ordinary(nbytes: int) -> Raw:
    """In place of memory that is page-locked."""
    return np.empty(nbytes, np.uint8)


@contextmanager
def asked(engine: LlamaEngine, on_question: Callable[[int], None] = lambda _: None) -> Iterator[list[bool]]:
    """Every answer to llama.cpp's question whether to stop, which it asks at each step of its work.

    The answer is the engine's own; `on_question` is told beforehand how many there have been.
    """
    strlen = C.CDLL(None).strlen
    strlen.argtypes, strlen.restype = (C.c_void_p,), C.c_size_t
    answers: list[bool] = []

    def answer(cancelled: int) -> bool:
        on_question(len(answers))
        answers.append(strlen(cancelled) > 0)
        return answers[-1]

    callback = C.CFUNCTYPE(C.c_bool, C.c_void_p)(answer)
    context = engine.context
    context._dll.llama_set_abort_callback(context.handle, C.cast(callback, C.c_void_p), C.addressof(context._cancelled))
    try:
        yield answers
    finally:
        context._watch_for_cancel()
