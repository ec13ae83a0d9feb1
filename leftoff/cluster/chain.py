"""A request of any dialect as a chain of hashes: one for what stands before its messages, then one for each message.

    key 0: the API key, tools, system prompt    key 1: … and the first message    key 2: … and the second    …

Two requests that share the first keys share the beginning of their prompts. That is all a router must know of them: no
template, no tokenizer. Prompts that are no chats are cut into parts of 1,024 characters in place of messages.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec
from blake3 import blake3

from leftoff.types import HEADER_ROLES

KEY_BYTES = 16
_PART_CHARACTERS = 1024  # of a text
# What stands before the messages, or changes how the template shows them, in any dialect.
_BEFORE = ("tools", "system", "instructions", "functions", "chat_template_kwargs", "cache_salt", "think", "template")
_MESSAGES = ("messages", "input", "prompt")  # the first of them that is there
_IDENTITY = ("authorization", "x-api-key", "x-cache-salt")
_MARK = "cache_control"  # clients move it from message to message
_OWNED = ("previous_response_id", "conversation")
_OWNED_IN_PATH = re.compile(r"/(?:responses|conversations)/((?:resp|conv)_[\w-]+)")

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Chain:
    """`ends` are the bytes up to each key. `owner` is an id that only one replica knows: it must answer."""

    keys: tuple[bytes, ...]
    ends: tuple[int, ...]
    model: str = ""
    owner: str | None = None
    is_text: bool = False  # parts of a text in place of messages
    header: int = 0  # the key after the last of the system messages that it begins with


def read_chain(body: bytes, headers: Mapping[str, str], path: str = "") -> Chain:
    """The chain of a request; one without keys for what is no prompt, which any replica may answer or refuse."""
    if (named := _OWNED_IN_PATH.search(path)) is not None:
        return Chain((), (), owner=named[1])
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Chain((), ())
    parts, is_text = _parts(fields, has_marks=_MARK.encode() in body)
    model = fields.get("model")
    return _hashed(
        [_encode([[headers.get(name) for name in _IDENTITY], [fields.get(name) for name in _BEFORE]]), *parts],
        model if isinstance(model, str) else "",
        _owner(fields),
        is_text=is_text,
        header=_num_system_messages(fields.get("messages") or fields.get("input")),
    )


def _parts(fields: Mapping[str, Any], *, has_marks: bool) -> tuple[list[bytes], bool]:
    said: Any = next((fields[name] for name in _MESSAGES if fields.get(name)), [])
    if isinstance(said, str):
        return [
            said[start : start + _PART_CHARACTERS].encode() for start in range(0, len(said), _PART_CHARACTERS)
        ], True
    if not isinstance(said, list):
        return [_encode(said)], False
    return [_encode(_unmarked(each) if has_marks else each) for each in said], False


def _unmarked(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _unmarked(inner) for key, inner in value.items() if key != _MARK}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def _owner(fields: Mapping[str, Any]) -> str | None:
    for value in map(fields.get, _OWNED):
        name = value.get("id") if isinstance(value, dict) else value
        if isinstance(name, str) and name:
            return name
    return None


def _num_system_messages(said: Any) -> int:  # noqa: ANN401
    messages = said if isinstance(said, list) else []
    roles = (each.get("role") if isinstance(each, dict) else None for each in messages)
    return sum(1 for _ in takewhile(lambda role: role in HEADER_ROLES, roles))


def _hashed(parts: Sequence[bytes], model: str, owner: str | None, *, is_text: bool, header: int) -> Chain:
    keys: list[bytes] = []
    ends: list[int] = []
    key, end = b"", 0
    for part in parts:
        key, end = blake3(key + part).digest()[:KEY_BYTES], end + len(part)
        keys.append(key)
        ends.append(end)
    return Chain(tuple(keys), tuple(ends), model, owner, is_text, header)
