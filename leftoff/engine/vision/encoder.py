"""Pictures of prompts: the tokens that stand for each, and its embeddings, encoded on a thread of their own and kept.

What was encoded is kept under the picture's key: a prompt that changes before a picture, or another that shows it too,
encodes nothing. A picture that is being encoded for one prompt is not encoded for another at the same time.
"""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from blake3 import blake3

from leftoff.engine.errors import EngineError
from leftoff.engine.vision.kept import Encoded, KeptPictures
from leftoff.engine.vision.projector import ImageChunk, Projector
from leftoff.lru import LruCache
from leftoff.machine import trim_heap
from leftoff.picture import Picture, PictureError
from leftoff.picture_tokens import picture_tokens
from leftoff.types import Embeddings, PictureSource

Wake = Callable[[], None]

_SHOWN_BYTES = 16 << 20  # of the tokens of pictures that are remembered: those of a hundred large ones
_TOKEN_BYTES = 40  # a number and its place in a tuple


@dataclass(frozen=True)
class PictureTokens:
    """The tokens of a picture, those around it included, and how many runs of embeddings are among them."""

    tokens: tuple[int, ...]
    num_images: int


class PictureEncoder:
    """Any thread may call it; one of its own encodes."""

    def __init__(
        self,
        projector: Projector,
        kept: KeptPictures,
        most_tokens: int | None = None,
        *,
        remembered_bytes: int = _SHOWN_BYTES,
    ) -> None:
        """`most_tokens` is what one picture may take if it cannot be read in parts."""
        self.projector = projector
        self.kept = kept
        self._most_tokens = most_tokens
        self._known: LruCache[bytes, PictureTokens] = LruCache(
            max_bytes=remembered_bytes, size_of=lambda _, shown: _TOKEN_BYTES * len(shown.tokens)
        )
        self._running: dict[bytes, _Encoding] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "leftoff-pictures")

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def num_encoded(self) -> int:
        return self.projector.num_encoded

    def tokens(self, picture: Picture) -> PictureTokens:
        """The tokens that stand for the picture in a prompt. Decodes nothing of a file that is known."""
        key = self.key(picture)
        known = self._known.get(key)
        if known is None:
            known = self._made_tokens(key, picture)
            self._known.put(key, known)
        return known

    def sources(self, picture: Picture) -> list[PictureSource]:
        """Where the embeddings of each run of its tokens come from, in order."""
        key = self.key(picture)
        return [_Source(self, key, picture, index) for index in range(self.tokens(picture).num_images)]

    def key(self, picture: Picture) -> bytes:
        """Hash of all that the embeddings depend on, and of the namespace: it is not known to another."""
        return blake3(f"{self.projector.fingerprint} {picture.namespace} ".encode() + picture.digest).digest()

    def _made_tokens(self, key: bytes, picture: Picture) -> PictureTokens:
        width, height = picture.width, picture.height
        try:
            layout = self.projector.layout(width, height)
        except EngineError as error:
            raise PictureError(f"{picture.name} cannot be shown to the model: {error}") from error
        tokens: list[int] = []
        for index, chunk in enumerate(layout.chunks):
            if not isinstance(chunk, ImageChunk):
                tokens += chunk
                continue
            if self._most_tokens is not None and chunk.num_tokens > self._most_tokens:
                raise PictureError(
                    f"{picture.name} takes {chunk.num_tokens} tokens, which this model reads all at once: "
                    f"--ubatch allows {self._most_tokens}"
                )
            run = picture_tokens(key + bytes([index % 256]), chunk.num_tokens, chunk.num_positions)
            tokens += run.tolist()
        return PictureTokens(tuple(tokens), len(layout.images))

    # --- encoding

    def begin(self, key: bytes, picture: Picture, wake: Wake) -> "_Encoding":
        """Has a picture encoded, unless that is done already or under way; `wake` is called when it is there."""
        with self._lock:
            running = self._running.get(key)
            if running is not None:
                running.wakes.append(wake)
                return running
            running = self._running[key] = _Encoding(key, self._thread.submit(self._encode, key, picture), [wake])
        running.future.add_done_callback(lambda _: self._end(running))
        return running

    def withdraw(self, encoding: "_Encoding", wake: Wake) -> None:
        """One who began it does not want it any more: if nobody does, and it has not begun, it is not encoded."""
        with self._lock:
            if wake in encoding.wakes:
                encoding.wakes.remove(wake)
            is_wanted = bool(encoding.wakes)
        if not is_wanted:
            encoding.future.cancel()

    def _encode(self, key: bytes, picture: Picture) -> Encoded:
        found = self.kept.get(picture.namespace, key)
        if found is None:
            found = self.projector.encode(picture.pixels())
            self.kept.put(picture.namespace, key, found)
            self._trim_later()
        picture.drop_pixels()
        return found

    def _trim_later(self) -> None:
        """Trims after the last of several: of a photo, the C library would keep hundreds of freed megabytes."""
        if len(self._running) == 1:
            with suppress(RuntimeError):  # it is being closed
                self._thread.submit(trim_heap)

    def _end(self, encoding: "_Encoding") -> None:
        with self._lock:
            self._running.pop(encoding.key, None)
            wakes = [*encoding.wakes]
        for wake in wakes:
            wake()


@dataclass(eq=False)
class _Encoding:
    """A picture that is being encoded, and those to wake when it is."""

    key: bytes
    future: Future[Encoded]
    wakes: list[Wake]


class _Source:
    """One run of a picture's tokens in one prompt."""

    def __init__(self, encoder: PictureEncoder, key: bytes, picture: Picture, index: int) -> None:
        self._encoder = encoder
        self._key = key
        self._picture = picture
        self._index = index
        self._encoding: _Encoding | None = None
        self._wake: Wake = lambda: None

    def begin(self, wake: Wake) -> None:
        if self._encoding is None:
            self._wake = wake
            self._encoding = self._encoder.begin(self._key, self._picture, wake)

    def take(self) -> Embeddings | None:
        if self._encoding is None or not self._encoding.future.done():
            return None
        encoding, self._encoding = self._encoding, None
        try:
            return encoding.future.result()[self._index]
        except CancelledError:
            return None  # by others, before this one wanted it: it is begun again

    def cancel(self) -> None:
        self._picture.drop_pixels()
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            self._encoder.withdraw(encoding, self._wake)
