"""The training text as rows of tokens: real documents and generated ones, packed, each token with its weight."""

import lzma
import math
import multiprocessing
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

import numpy as np
import numpy.typing as npt

from training.content import HERE
from training.generate import documents
from training.thinking import Document
from training.tokens import END_OF_TEXT, THINK, TURN_START, tokenizer

REAL_TEXT = HERE / "data" / "real.txt.xz"

# How much a token counts: not at all, as something that was read, as something to be said.
IGNORED, READ, SAID = 0, 1, 2

_REAL_PER_JOB = 400
_DOCUMENTS_PER_JOB = 1000
_MADE_UP_PER_REAL = 350_000  # documents for which all the real text is read once: a tenth of the tokens is real
_LARGEST_OPEN = 64
_FULL = 24  # a row with less room than this is closed


@dataclass(frozen=True)
class Rows:
    """Rows of tokens, with the weight of each."""

    tokens: npt.NDArray[np.uint16]
    weights: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Job:
    """Work for one process: some real documents, or a seed for generated ones."""

    length: int
    real: tuple[str, ...] = ()
    seed: int = 0

    def run(self) -> Rows:
        generated = islice(documents(self.seed), _DOCUMENTS_PER_JOB)
        return pack([Document(text) for text in self.real] or list(generated), self.length)


def real_documents() -> list[str]:
    return lzma.open(REAL_TEXT).read().decode().split("\0")


def jobs(length: int, seed: int, num_generated: int, real_share: float = 1.0) -> list[Job]:
    """In an order in which real and generated text come evenly: training begins before all of it is there."""
    real = real_documents()
    real = real[: int(len(real) * real_share)] * math.ceil(num_generated / _MADE_UP_PER_REAL)
    read = [Job(length, real=tuple(real[i : i + _REAL_PER_JOB])) for i in range(0, len(real), _REAL_PER_JOB)]
    make = [Job(length, seed=seed * 100_000 + i) for i in range(math.ceil(num_generated / _DOCUMENTS_PER_JOB))]
    work = read + make
    random.Random(seed).shuffle(work)
    return work


class Preparation:
    """Runs the jobs in processes beside the caller."""

    def __init__(self, work: Sequence[Job], num_processes: int) -> None:
        self._pool = multiprocessing.get_context("fork").Pool(num_processes)
        self._made = self._pool.imap_unordered(Job.run, work)

    def __enter__(self) -> "Preparation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.terminate()
        self._pool.join()

    def wait(self) -> Rows:
        """The rows of the next job that is done."""
        return self._made.next()

    def ready(self) -> Iterator[Rows]:
        """What is done by now."""
        while True:
            try:
                yield self._made.next(timeout=0)
            except (multiprocessing.TimeoutError, StopIteration):
                return


def pack(texts: Sequence[Document], length: int) -> Rows:
    """As few rows as possible of `length` tokens; a document is never split, and cut only if longer than a row."""
    encoded = tokenizer().encode_batch([document.text for document in texts], add_special_tokens=False)
    pieces = [_weighted(e.ids[: length - 1], document) for e, document in zip(encoded, texts, strict=True)]
    bins = _fill_bins([tokens.size for tokens, _ in pieces], length)
    tokens = np.full((len(bins), length), END_OF_TEXT, np.uint16)
    weights = np.zeros((len(bins), length), np.uint8)
    for row, contents in enumerate(bins):
        start = 0
        for index in contents:
            piece, weight = pieces[index]
            tokens[row, start : start + piece.size] = piece
            weights[row, start : start + piece.size] = weight
            start += piece.size
    return Rows(tokens, weights)


def _weighted(ids: list[int], document: Document) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Replies are to be said; all else is only read."""
    tokens = np.array([*ids, END_OF_TEXT], np.uint16)
    weights = np.full(tokens.size, READ, np.uint8)
    assistant = tokenizer().encode("assistant").ids[0]
    starts = np.flatnonzero(tokens == TURN_START)
    for start, end in zip(starts, (*starts[1:], tokens.size), strict=True):
        if start + 3 < tokens.size and tokens[start + 1] == assistant:
            thinks = tokens[start + 3] == THINK
            weights[start + 3 : end] = SAID if thinks or not document.only_thinking else IGNORED
    weights[-1] = READ
    return tokens, weights


def _fill_bins(sizes: Sequence[int], length: int) -> list[list[int]]:
    """Best fit, longest first."""
    bins: list[list[int]] = []
    room: dict[int, int] = {}  # of the bins that are still open
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fitting = [number for number, free in room.items() if free >= sizes[index]]
        number = min(fitting, key=room.__getitem__, default=len(bins))
        if number == len(bins):
            bins.append([])
            room[number] = length
        bins[number].append(index)
        room[number] -= sizes[index]
        if room[number] < _FULL:
            del room[number]
        elif len(room) > _LARGEST_OPEN:
            del room[min(room, key=room.__getitem__)]
    return bins
