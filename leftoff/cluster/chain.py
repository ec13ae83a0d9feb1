"""A request of any dialect as a chain of hashes: one for what stands before its messages, then one for each message.

    key 0: the API key, tools, system prompt    key 1: … and the first message    key 2: … and the second    …

Two requests that share the first keys share the beginning of their prompts. That is all a router must know of them: no
template, no tokenizer. Prompts that are no chats are cut into parts of 1,024 characters in place of messages.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import msgspec
from blake3 import blake3

from leftoff.types import HEADER_ROLES

REPLICA = "x-leftoff-replica"  # the header that names a replica: in an answer, or in a request for that one alone
KEY_BYTES = 16
_PART_CHARACTERS = 1024  # of a text
# What stands before the messages, or changes how the template shows them, in any dialect.
_BEFORE = (
    *("tools", "system", "instructions", "functions", "chat_template_kwargs"),
    *("cache_salt", "think", "template", "lora"),
)
_MESSAGES = ("messages", "input", "prompt")  # the first of them that is there
_IDENTITY = ("authorization", "x-api-key", "x-cache-salt")
_MARK = "cache_control"  # clients move it from message to message
_OWNED = ("previous_response_id", "conversation")
_OWNED_IN_PATH = re.compile(r"/(?:responses|conversations)/((?:resp|conv)_[\w-]+)")
_MODEL_IN_PATH = re.compile(r"/v1/models/(.+)")

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Chain:
    """`ends` are the bytes up to each key. `owner` is an id that only one replica knows: it must answer.

    With `replica`, the request is for the replica of that id.
    """

    keys: tuple[bytes, ...]
    ends: tuple[int, ...]
    model: str = ""
    owner: str | None = None
    is_text: bool = False  # parts of a text in place of messages
    replica: str = ""
    header: int = 0  # the key after the last of the system messages that it begins with

    def of(self, model: str) -> "Chain":
        """The chain for the model that is to answer: to another one the same messages are other tokens."""
        salt = int.from_bytes(blake3(model.encode()).digest()[:KEY_BYTES])
        return replace(self, keys=tuple((int.from_bytes(key) ^ salt).to_bytes(KEY_BYTES) for key in self.keys))


def read_chain(body: bytes, headers: Mapping[str, str], path: str = "", model: str = "") -> Chain:
    """The chain of a request; one without keys for what is no prompt, which any replica may answer or refuse.

    `model` is named in its query.
    """
    replica = headers.get(REPLICA, "")
    if (named := _OWNED_IN_PATH.search(path)) is not None:
        return Chain((), (), owner=named[1], replica=replica)
    if (named := _MODEL_IN_PATH.fullmatch(path)) is not None:
        return Chain((), (), model=named[1], replica=replica)
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        before = _encode([[headers.get(name) for name in _IDENTITY], [fields.get(name) for name in _BEFORE]])
        parts, is_text = _parts(fields, has_marks=_MARK.encode() in body)
    except (ValueError, RecursionError):
        return Chain((), (), model=model, replica=replica)
    named_in_body = fields.get("model")
    keys, ends = _hashed([before, *parts])
    return Chain(
        *(keys, ends, named_in_body if isinstance(named_in_body, str) else model, _owner(fields), is_text, replica),
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


def _hashed(parts: Sequence[bytes]) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The key after each part, and the bytes up to there."""
    keys: list[bytes] = []
    ends: list[int] = []
    key, end = b"", 0
    for part in parts:
        key, end = blake3(key + part).digest()[:KEY_BYTES], end + len(part)
        keys.append(key)
        ends.append(end)
    return tuple(keys), tuple(ends)
