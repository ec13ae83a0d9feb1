"""Framing of streamed chunks: server-sent events or JSON lines, and keep-alives for streams that are silent."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode

_EVENT_STREAM = b"text/event-stream; charset=utf-8"

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


def _named_event(chunk: Any) -> bytes:  # noqa: ANN401
    return b"event: %b\n" % chunk.type.encode() + _event(chunk)


def _line(chunk: msgspec.Struct) -> bytes:
    return _encode(chunk) + b"\n"


EVENTS = Framing(_EVENT_STREAM, _event)
NAMED_EVENTS = Framing(_EVENT_STREAM, _named_event)  # for chunks with a field `type`
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
