"""Framing of streamed chunks: server-sent events or JSON lines, and keep-alives for streams that are silent."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

_encode = msgspec.json.Encoder().encode

Frame = Callable[[msgspec.Struct], bytes]


@dataclass(frozen=True)
class Framing:
    """Encodes one chunk as bytes, and names the media type of the stream."""

    media_type: bytes
    frame: Frame

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", self.media_type), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


def _event(chunk: msgspec.Struct) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


def _named_event(chunk: msgspec.Struct) -> bytes:
    return b"event: " + str(chunk.__struct_config__.tag).encode() + b"\n" + _event(chunk)


def _line(chunk: msgspec.Struct) -> bytes:
    return _encode(chunk) + b"\n"


EVENTS = Framing(b"text/event-stream; charset=utf-8", _event)
NAMED_EVENTS = Framing(b"text/event-stream; charset=utf-8", _named_event)  # by the tag of their type
LINES = Framing(b"application/x-ndjson", _line)


@dataclass
class Pulse:
    """A timer for keep-alives: clients give up a stream that stays silent while a long prompt is read."""

    seconds: float = 5.0
    _last: float = field(default_factory=time.monotonic)

    def beats(self) -> bool:
        """True once in every `seconds`; the next interval starts with that call."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True
