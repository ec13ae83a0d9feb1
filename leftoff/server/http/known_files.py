"""Pictures that a client has sent before, found in a request's body while that is still bytes.

Clients send a conversation whole, with every picture that was ever in it. To decode an old picture only to see that it
is known would take most of the time: a Python string is made of its base64, and bytes of that. So the text between its
quotes is hashed where it lies, and the body is decoded with a short name in its place.

    body      {"messages": [ ··· {"url": "data:image/png;base64,iVBORw0KGgo ··· a megabyte ··· "} ··· ]}
    decoded   {"messages": [ ··· {"url": "known:5b1f···:9ac0···:0"} ··· ]}

Where a picture's text stands is not known here: whoever decodes the body checks that each name is where pictures are.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from blake3 import blake3

from leftoff.lru import LruCache
from leftoff.picture import KnownFile

Hash = Callable[[bytes | memoryview], bytes]
_Key = tuple[str, int, bytes]  # owner, length and hash of a text

_NUM_KNOWN = 1 << 12
_MIN_BYTES = 1 << 14  # of a text that is worth it
_STEP = _MIN_BYTES // 2  # between looks for such a text: one of them falls into it
_LOOK = re.compile(rb"[A-Za-z0-9+/]{256}")
# A quote that opens a string in JSON: nothing that may follow a whole string looks like this.
_OPENED = re.compile(rb'[^\\]"(?:data:[\w.+/;=-]{1,200},)?[A-Za-z0-9+/]')


@dataclass(frozen=True)
class NamedFiles:
    """A body in which names stand for files that are known, and those files by their names."""

    data: bytes
    files: dict[str, KnownFile]


class KnownFiles:
    """Texts of pictures that were taken, by their hash and apart for each owner. Any thread may call it."""

    def __init__(self) -> None:
        self._digests: LruCache[_Key, bytes] = LruCache(max_entries=_NUM_KNOWN)
        self._lengths: list[int] = []
        self._prefix = f"known:{secrets.token_hex(16)}:"

    def learn(self, owner: str, text: str, digest: bytes) -> None:
        """A picture came as this text, base64 or a data URL; `digest` is that of its file."""
        if len(text) >= _MIN_BYTES and text.isascii():
            self._digests.put((owner, len(text), fastest_hash()(text.encode())), digest)
            self._lengths = sorted({length for (_, length, _), _ in self._digests.items()})

    def named(self, owner: str, data: bytes) -> NamedFiles:
        """The body with a name for each text that this owner has sent before as a picture."""
        parts, files, done, at = list[bytes](), dict[str, KnownFile](), 0, 0
        while self._lengths and at < len(data):
            if _LOOK.match(data, at):
                start = data.rfind(b'"', 0, at) + 1
                file = self._known_at(owner, data, start)
                end = start + len(file.text) if file is not None else data.find(b'"', at)
                if file is not None:
                    name = f"{self._prefix}{file.digest.hex()}:{len(files)}"  # of another file in no other request
                    files[name] = file
                    parts += [data[done:start], name.encode()]
                    done = end
                at = end if end >= 0 else len(data)
            at += _STEP
        return NamedFiles(b"".join([*parts, data[done:]]) if files else data, files)

    def _known_at(self, owner: str, data: bytes, start: int) -> KnownFile | None:
        """The known text that begins at `start`; None if there is none.

        Its end is not searched for, which would read it once more: each known length is tried. No known text has a
        quote inside, so the hash tells that the end is the right one.
        """
        if not _OPENED.match(data, max(0, start - 2)):
            return None
        length = next((length for length in self._lengths if data[start + length : start + length + 1] == b'"'), 0)
        text = memoryview(data)[start : start + length]
        digest = self._digests.get((owner, length, fastest_hash()(text)))
        return KnownFile(text, digest) if digest is not None else None

    def forget(self) -> None:
        self._digests.remove_if(lambda _: True)
        self._lengths = []


@cache
def fastest_hash() -> Hash:
    """SHA-256 or BLAKE3, whichever is faster here: for hashes that are kept only as long as the process lives.

    Where a processor has instructions for SHA-256, that may be four times as fast as BLAKE3, and else a fifth.
    """
    return min((_sha256, _blake3), key=_seconds)


def _seconds(function: Hash) -> float:
    sample, times = bytes(1 << 18), []
    for _ in range(3):
        start = time.perf_counter()
        function(sample)
        times.append(time.perf_counter() - start)
    return min(times)


def _sha256(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def _blake3(data: bytes | memoryview) -> bytes:
    return blake3(data).digest()
