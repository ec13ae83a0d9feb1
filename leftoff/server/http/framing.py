"""How the chunks of a stream are told apart on the connection."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

_encode = msgspec.json.Encoder().encode

Frame = Callable[[msgspec.Struct], bytes]


@dataclass(frozen=True)
class Framing:
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
