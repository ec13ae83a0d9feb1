"""A call as one JSON object: `{"name": "look_up", "arguments": {"place": "harbour"}}`."""

from dataclasses import dataclass

from leftoff.chat.formats.json_text import is_json, read_nested, read_string, read_value
from leftoff.chat.formats.scanner import NotSoError, Reading, Waiting

_ARGUMENTS_KEYS = ("arguments", "parameters")
_OTHER_KEYS = ("id", "type")  # the server gives ids of its own, and there is but one type


@dataclass
class _Head:
    """What is known of a call."""

    name: str = ""
    arguments: str = ""  # that came before the name
    is_started: bool = False


def read_call(reading: Reading, names: frozenset[str] | None = None) -> Waiting[None]:
    """Starts the call where its arguments begin: before that it may still turn out to be none. `names`: no others."""
    head = _Head()
    yield from reading.expect("{")
    while True:
        key = yield from read_string(reading)
        yield from reading.expect(":")
        yield from reading.spaces()
        yield from _read_member(reading, head, key, names)
        yield from reading.spaces()
        if not (yield from reading.literal(",")):
            break
    yield from reading.expect("}")
    if not head.is_started:
        _start(reading, head, names)
        reading.say_arguments(head.arguments or "{}")
    reading.hold()


def read_calls(reading: Reading) -> Waiting[None]:
    """A list of them."""
    yield from reading.expect("[")
    yield from reading.calls(read_call, ",")
    yield from reading.expect("]")
    reading.hold()


def read_named(reading: Reading, name: str) -> Waiting[None]:
    """The arguments of a call whose name stood before them."""
    yield from reading.spaces()
    if (yield from reading.peek()) != "{":
        raise NotSoError
    reading.start_call(name)
    yield from read_nested(reading, reading.say_arguments)
    reading.hold()


def _read_member(reading: Reading, head: _Head, key: str, names: frozenset[str] | None) -> Waiting[None]:
    if key in _OTHER_KEYS:
        yield from read_value(reading)
    elif key == "name" and not head.name:
        head.name = yield from read_string(reading)
    elif key not in _ARGUMENTS_KEYS or head.is_started or head.arguments:
        raise NotSoError
    elif head.name and (yield from reading.peek()) == "{":
        _start(reading, head, names)
        yield from read_nested(reading, reading.say_arguments)
        reading.hold()
    else:
        head.arguments = yield from _read_arguments(reading)


def _read_arguments(reading: Reading) -> Waiting[str]:
    """Some write the object as a string, some write null for nothing."""
    if (yield from reading.peek()) == '"':
        value = yield from read_string(reading)
    else:
        value = yield from read_value(reading)
    if value == "null":
        return "{}"
    if not (value.startswith("{") and is_json(value)):
        raise NotSoError
    return value


def _start(reading: Reading, head: _Head, names: frozenset[str] | None) -> None:
    if names is not None and head.name not in names:
        raise NotSoError
    reading.start_call(head.name)
    head.is_started = True
