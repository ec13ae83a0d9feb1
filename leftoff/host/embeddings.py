"""Vectors and scores of texts. The same text again is not computed again, as long as its vector is remembered."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from leftoff.engine.embedder import Embedder, Shape, Vectors
from leftoff.lru import LruCache
from leftoff.types import Tokens

Vector = npt.NDArray[np.float32]
Result = TypeVar("Result")

_REMEMBERED_BYTES = 32 << 20
_ENTRY_BYTES = 200  # of a key, and of what Python adds


class RunsErrands(Protocol):
    """Runs a function on the thread of the engine, while its model is loaded."""

    def __call__(self, function: Callable[[], Result]) -> "Future[Result]": ...


class Embeddings:
    """The vectors of one model. Any event loop may ask."""

    def __init__(self, open_embedder: Callable[[], Embedder], errand: RunsErrands) -> None:
        self._open = open_embedder
        self._errand = errand
        self._shape: Shape | None = None
        self._num_forgets = 0
        self._forgetting = threading.Lock()
        self._known: LruCache[tuple[str, bytes], Vector] = LruCache(
            max_bytes=_REMEMBERED_BYTES, size_of=lambda _, vector: vector.nbytes + _ENTRY_BYTES
        )

    def __len__(self) -> int:
        """How many vectors are remembered."""
        return len(self._known)

    async def shape(self) -> Shape:
        if self._shape is None:
            self._shape = await asyncio.wrap_future(self._errand(lambda: self._open().shape))
        return self._shape

    async def embed(self, texts: Sequence[Tokens], namespace: str = "") -> list[Vector]:
        """The vector of each text. Replies go on between two batches."""
        keys = [(namespace, blake3(tokens.tobytes()).digest()) for tokens in texts]
        known = zip(keys, self._known.get_many(keys), strict=True)
        vectors = {key: vector for key, vector in known if vector is not None}
        lacking = {key: tokens for key, tokens in zip(keys, texts, strict=True) if key not in vectors}
        num_forgets = self._num_forgets
        computed = dict(zip(lacking, await self._compute([*lacking.values()]), strict=True))
        with self._forgetting:
            if num_forgets == self._num_forgets:
                for key, vector in computed.items():
                    self._known.put(key, vector)
        vectors |= computed
        return [vectors[key] for key in keys]

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the vectors of the namespaces that are meant. Those that are being computed are not remembered."""
        with self._forgetting:
            self._num_forgets += 1
            for key in [key for key, _ in self._known.items() if is_meant(key[0])]:
                self._known.pop(key)

    async def _compute(self, texts: Sequence[Tokens]) -> list[Vector]:
        computed: list[Vector] = []
        while len(computed) < len(texts):
            some = partial(self._embed_some, texts[len(computed) :])
            computed.extend(await asyncio.wrap_future(self._errand(some)))
        return computed

    def _embed_some(self, texts: Sequence[Tokens]) -> Vectors:
        """The vectors of the first texts: of as many as are computed together."""
        embedder = self._open()
        return embedder.embed(texts[: embedder.num_together(texts)])
