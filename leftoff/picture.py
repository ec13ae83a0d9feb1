"""Pictures that clients send: files known by the hash of their bytes, and decoded as seldom as can be.

A file is taken for what its first bytes say, whatever its name or its sender calls it. Its size is read from its header
and held to the limits before anything is decoded. Of an animation the first frame counts.

A picture is decoded when it is taken, to know that it can be, and its pixels wait for the projector. They go when they
are read, and with the last request that shows the picture, also if that was refused.
"""

import binascii
import io
import re
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pybase64
from blake3 import blake3

from leftoff.errors import LeftoffError, reason_of
from leftoff.lru import LruCache

Pixels = npt.NDArray[np.uint8]  # height by width by 3, RGB

# Where a picture stands in a text. Only those of a conversation's own pictures mean anything.
MARKER = re.compile(r"<__picture:([0-9a-f]{64})__>")

MAX_SIDE = 1 << 15
_MEGAPIXEL = 1_000_000
_CHUNK = 1 << 18  # characters of base64: whole groups of four
_KNOWN_SIZES = 1 << 14
_CPU_SECONDS = 10  # fifty megapixels take one or two
_READ_BYTES = 4 << 10  # at once: some fifty scans of a JPEG, each of which may take as long as the whole picture
_HELD_BYTES = 256 << 20  # of pixels that wait, of all requests

# What is odd in the file of a client is no news for the operator, and Python would keep each text for ever.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureError(LeftoffError):
    """A file is no picture, is broken, or is larger than the limits. The message names the picture."""


class Base64Error(LeftoffError):
    """A text is no base64."""


@dataclass(frozen=True)
class Size:
    """The size of a picture as it is seen, with its EXIF orientation applied."""

    width: int
    height: int


@dataclass(frozen=True)
class KnownFile:
    """A file that was taken before, in the body of a request: its base64 or data URL, and the digest of its bytes."""

    text: memoryview = field(repr=False)
    digest: bytes


@dataclass(eq=False)
class Held:
    """Pixels that nobody has read yet. The pictures of equal files share them."""

    pixels: Pixels | None


@dataclass(eq=False)
class Picture:
    """A picture file, or its base64. `name` says in errors which one it is; `namespace` is whose it is."""

    file: bytes | str | KnownFile = field(repr=False)
    name: str
    taken_by: "Pictures" = field(repr=False)
    namespace: str = ""
    held: Held | None = field(default=None, init=False, repr=False)

    @cached_property
    def data(self) -> bytes:
        if isinstance(self.file, bytes):
            return self.file
        return from_base64(self.file if isinstance(self.file, str) else str(self.file.text, "ascii"))

    @cached_property
    def digest(self) -> bytes:
        """The hash of the file, by which the picture is known again."""
        if isinstance(self.file, KnownFile):
            return self.file.digest
        if isinstance(self.file, str):
            # Bit by bit, and dropped again: most of what a whole file costs is memory that was not touched before.
            with suppress(Base64Error):  # if it has line breaks
                hasher = blake3()
                for at in range(_base64_start(self.file), len(self.file), _CHUNK):
                    hasher.update(_decoded_base64(self.file[at : at + _CHUNK]))
                return hasher.digest()
        return blake3(self.data).digest()

    @property
    def marker(self) -> str:
        """The text that stands for the picture in a message."""
        return f"<__picture:{self.digest.hex()}__>"

    @cached_property
    def size(self) -> Size:
        """Decodes the picture if no equal one was: who knows its size knows that it can be decoded."""
        return self.taken_by.size(self)

    @property
    def width(self) -> int:
        return self.size.width

    @property
    def height(self) -> int:
        return self.size.height

    def pixels(self) -> Pixels:
        """Decoded, with transparency on white. Not kept: ask once."""
        held, self.held = self.held, None
        if held is None or (pixels := held.pixels) is None:
            return self.taken_by.decode(self)
        held.pixels = None
        return pixels

    def drop_pixels(self) -> None:
        """Lets go of the decoded pixels; equal pictures of other requests keep them."""
        self.held = None


class Pictures:
    """Takes files as pictures, and remembers the sizes of those that were decoded. Any thread may call it.

    Pixels are kept alive by pictures alone; here it is known which there are, so that equal files share them.

    What is remembered for one namespace is not used for another.
    """

    def __init__(
        self, *, max_megapixels: int = 50, max_held_bytes: int = _HELD_BYTES, cpu_seconds: float = _CPU_SECONDS
    ) -> None:
        """Pixels beyond `max_held_bytes` do not wait: they are decoded again when they are read.

        A file that takes longer to decode is refused: others wait for their turn.
        """
        self.num_decoded = 0
        self._max_pixels = max_megapixels * _MEGAPIXEL
        self._max_held_bytes = max_held_bytes
        self._cpu_seconds = cpu_seconds
        self._sizes: LruCache[tuple[str, bytes], Size] = LruCache(max_entries=_KNOWN_SIZES)
        self._held: WeakValueDictionary[tuple[str, bytes], Held] = WeakValueDictionary()
        self._holding = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """The bytes of pixels that nobody has read yet."""
        with self._holding:
            return self._num_held()

    def take(self, file: bytes | str | KnownFile, name: str = "the image", namespace: str = "") -> Picture:
        """The picture that a file is, or its base64, or a data URL. Raises `PictureError` unless it can be decoded."""
        picture = Picture(file, name, self, namespace)
        try:
            _ = picture.size
        except Base64Error as error:
            raise PictureError(f"{name} {error}") from error
        return picture

    def size(self, picture: Picture) -> Size:
        key = (picture.namespace, picture.digest)
        known = self._sizes.get(key)
        if known is None:
            pixels = self.decode(picture)
            known = Size(pixels.shape[1], pixels.shape[0])
            picture.held = self._hold(key, pixels)
            self._sizes.put(key, known)
        else:
            picture.held = self._held.get(key)
        return known

    def forget(self) -> None:
        """Drops all that is remembered. Requests that are under way keep their pixels."""
        self._sizes.remove_if(lambda _: True)

    def _hold(self, key: tuple[str, bytes], pixels: Pixels) -> Held | None:
        with self._holding:
            has_room = self._num_held() + pixels.nbytes <= self._max_held_bytes
            return self._held.setdefault(key, Held(pixels)) if has_room else None

    def _num_held(self) -> int:
        return sum(pixels.nbytes for held in self._held.values() if (pixels := held.pixels) is not None)

    def decode(self, picture: Picture) -> Pixels:
        self.num_decoded += 1
        try:
            return _decoded(picture.data, self._max_pixels, self._cpu_seconds)
        except PictureError as error:
            raise PictureError(f"{picture.name} {error}") from error
        except MemoryError as error:
            raise PictureError(f"{picture.name} is too large for the memory that is left") from error
        except Exception as error:  # Pillow's decoders fail in many ways on broken files
            raise PictureError(f"{picture.name} cannot be decoded: {reason_of(error)[:200]}") from error


def from_base64(text: str) -> bytes:
    """The bytes of a data URL, or of base64 alone."""
    return _decoded_base64(text[_base64_start(text) :])


def _base64_start(text: str) -> int:
    if not text.startswith("data:"):
        return 0
    comma = text.find(",")
    if not text.endswith(";base64", 0, max(comma, 0)):
        raise Base64Error("must be a data URL in base64")
    return comma + 1


def _decoded_base64(text: str) -> bytes:
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        plain = "".join(text.split())
        if len(plain) == len(text):
            raise Base64Error(f"is no base64 ({error}), and no URL") from error
    return _decoded_base64(plain)


def kind_of(data: bytes) -> str | None:
    """The format of a file, by Pillow's name, from its first bytes; None if it is no picture that is taken."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    starts = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF87a": "GIF", b"GIF89a": "GIF", b"BM": "BMP"}
    return next((kind for start, kind in starts.items() if data.startswith(start)), None)


class _TimedFile(io.BytesIO):
    """A file that can be read for so many seconds of computing: small ones may take hours to decode."""

    def __init__(self, data: bytes, cpu_seconds: float) -> None:
        super().__init__(data)
        self._cpu_seconds = cpu_seconds
        self._began = time.thread_time()

    def read(self, size: int | None = -1, /) -> bytes:
        if time.thread_time() - self._began > self._cpu_seconds:
            raise PictureError(f"takes more than {self._cpu_seconds:g} s to decode: save it anew")
        return super().read(size)


def _decoded(data: bytes, max_pixels: int, cpu_seconds: float) -> Pixels:
    from PIL import Image, ImageOps, WebPImagePlugin  # noqa: F401, PLC0415  (a tenth of a second, and seldom needed)

    kind = kind_of(data)
    if kind is None:
        problem = "is empty" if not data else f"begins with the bytes {bytes(data[:8]).hex(' ')}"
        raise PictureError(f"{problem}: must be a PNG, JPEG, GIF, WebP or BMP file")
    Image.preinit()
    # not by `Image.open`, which warns of what is larger than its own limit: here is another
    with Image.OPEN[kind][0](_TimedFile(data, cpu_seconds), "") as image:
        width, height = image.size
        if width * height > max_pixels or max(width, height) > MAX_SIDE:
            most = f"at most {max_pixels // _MEGAPIXEL} megapixels (--image-megapixels) and {MAX_SIDE} on a side"
            raise PictureError(f"has {width} by {height} pixels: {most} are taken")
        image.decodermaxblock = _READ_BYTES
        image.load()
        turned = ImageOps.exif_transpose(image)
        return np.ascontiguousarray(_rgb(turned))


def _rgb(image: Any) -> Pixels:  # noqa: ANN401
    from PIL import Image  # noqa: PLC0415

    if image.mode.startswith("I"):  # 16 bits of grey: `convert` would cut them off at 255
        grey = (np.asarray(image, np.int32) >> 8).clip(0, 255).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if not image.has_transparency_data:
        return np.asarray(image.convert("RGB"))
    shown = image.convert("RGBA")
    white = Image.new("RGBA", shown.size, "white")
    return np.asarray(Image.alpha_composite(white, shown).convert("RGB"))
