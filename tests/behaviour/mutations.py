"""Changes request bodies where parsers look: types, keys, roles, ids, numbers, texts, encodings, headers."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.behaviour.bodies import ROUTES, Body

_DEEP: Any = None
for _ in range(60):
    _DEEP = [_DEEP] if isinstance(_DEEP, dict) else {"a": _DEEP}
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 0.5, -0.0, 1e308, -1e-320, 2**31, 2**63, -(2**64), 10**30),
    *(
        "",
        " ",
        "x",
        "\ud800",
        "\udfff\ud800",
        "\x00",
        "a\x1b[31m\x07",
        "\u202eabc",
        "\ufeff",
        "🧑🏽‍🚀" * 3,
        "0",
        "null",
    ),
    *(
        "<|im_end|>",
        "<|im_start|>system\n",
        "<think>",
        "</tool_call>",
        "{{ 7 * 7 }}",
        "{% for",
        "../../etc",
        "x" * 5000,
    ),
    *([], {}, [[]], [None], [{}], {"": ""}, {"type": "x"}, _DEEP, ["a"] * 300, [0] * 300),
)
_ROLES = ("system", "user", "assistant", "tool", "developer", "function", "ipython", "", "User", "critic", None, 3)
_KEYS = (
    "role",
    "content",
    "type",
    "id",
    "name",
    "text",
    "tools",
    "function",
    "input",
    "arguments",
    "$ref",
    "__class__",
)
_QUERIES = ("", "", "", "?beta=true", "?n=x", "?" + "a" * 3000, "?%00=%ff", "?a=1&a=2&&=", "?stream=1#x")
_HEADERS: tuple[tuple[str, str], ...] = (
    *(("Content-Type", kind) for kind in ("text/plain", "application/json; charset=utf-16", "", "multipart/form-data")),
    *(
        ("Accept", "text/event-stream"),
        ("Accept", "\xff"),
        ("Accept-Encoding", "gzip, br"),
        ("Content-Encoding", "gzip"),
    ),
    *(
        ("anthropic-version", "2099-01-01"),
        ("anthropic-beta", "x," * 200),
        ("x-api-key", "\xe9"),
        ("Authorization", "x"),
    ),
    *(("x-cache-salt", "\xff\xfe"), ("x-cache-salt", "s" * 3000), ("Expect", "100-continue"), ("Range", "bytes=0-1")),
    *(("X-Stainless-Retry-Count", "-1"), ("session-id", ""), ("x-codex-turn-metadata", "{" * 500), ("Cookie", "a=b;;")),
)


@dataclass(frozen=True)
class Mutated:
    """One request. Its path may have a query."""

    path: str
    headers: tuple[tuple[str, str], ...]
    data: bytes


def mutated(seed: int, number: int, routes: Sequence[tuple[str, Body]] = ROUTES) -> Mutated:
    """Request `number` of a seed."""
    rng = random.Random(f"{seed}/{number}")
    path, body = rng.choice(routes)
    body = copy.deepcopy(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        rng.choice(_MUTATIONS)(rng, body)
    data = json.dumps(body).encode()  # surrogates become escapes
    if rng.random() < 0.15:
        data = rng.choice(_SPOILED)(rng, data)
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    if rng.random() < 0.15:
        headers = tuple(dict([*headers, rng.choice(_HEADERS), rng.choice(_HEADERS)]).items())
    path = path if "?" in path else path + rng.choice(_QUERIES)
    return Mutated(quote(path, safe="/?&=%"), headers, data)


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    """All values inside, each as its container and its key there."""
    keys = range(len(value)) if isinstance(value, list) else value.keys() if isinstance(value, dict) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])  # type: ignore[index]


def _place(rng: random.Random, body: Body, kind: type | tuple[type, ...] = object) -> tuple[Any, Any] | None:
    """A place whose value is of a kind."""
    found = [(inside, key) for inside, key in _places(body) if isinstance(inside[key], kind)]
    return rng.choice(found) if found else None


def _swap_type(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body):
        place[0][place[1]] = copy.deepcopy(rng.choice(_VALUES))


def _drop(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body):
        del place[0][place[1]]


def _rename(rng: random.Random, body: Body) -> None:
    if (place := _place(rng, body)) and isinstance(place[0], dict):
        place[0][rng.choice(_KEYS)] = place[0].pop(place[1])


def _repeat(rng: random.Random, body: Body) -> None:
    if (place := _place(rng, body, list)) and place[0][place[1]]:
        place[0][place[1]] = [copy.deepcopy(rng.choice(place[0][place[1]])) for _ in range(rng.choice((2, 5, 40)))]


def _shuffle(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body, list):
        rng.shuffle(place[0][place[1]])


def _nest(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body):
        inside, key = place
        inside[key] = rng.choice(
            ([inside[key]], {"a": inside[key]}, {"type": "text", "text": inside[key]}, [[inside[key]]])
        )


def _cross(rng: random.Random, body: Body) -> None:
    """A value of another place, or of another client's body."""
    other = rng.choice([body, *(body for _, body in ROUTES)])
    if (place := _place(rng, body)) and (taken := _place(rng, other)):
        place[0][place[1]] = copy.deepcopy(taken[0][taken[1]])


def _cross_alike(rng: random.Random, body: Body) -> None:
    """A value that stands under the same key elsewhere: it passes for the right one more often."""
    other = rng.choice(ROUTES)[1]
    alike = [(here, there, key) for here, key in _places(body) for there, name in _places(other) if key == name]
    if alike:
        here, there, key = rng.choice(alike)
        here[key] = copy.deepcopy(there[key])


def _change_role(rng: random.Random, body: Body) -> None:
    messages = [inside for inside, key in _places(body) if key == "role"]
    if messages:
        rng.choice(messages)["role"] = rng.choice(_ROLES)


def _mix_ids(rng: random.Random, body: Body) -> None:
    named = [(inside, key) for inside, key in _places(body) if isinstance(key, str) and key.endswith("id")]
    if named:
        inside, key = rng.choice(named)
        inside[key] = rng.choice(["call_1", "c1", "toolu_01", "rs_1", "resp_none", "", "x" * 200, 7, None])


def _spoil_text(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body, str):
        inside, key = place
        at = rng.randrange(len(inside[key]) + 1)
        strange = rng.choice([value for value in _VALUES if isinstance(value, str)])
        inside[key] = inside[key][:at] + strange + inside[key][at:]


def _scale(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body, (int, float)):
        place[0][place[1]] = rng.choice((-1, 0, 1, 2, 7, 0.1, 1.5, 1e9, -1e9, 2**53, 2**31 - 1, -(2**31)))


def _enlarge(rng: random.Random, body: Body) -> None:
    if place := _place(rng, body, str):
        place[0][place[1]] = (place[0][place[1]] or "ab ")[:100] * rng.choice((10, 300, 3000))


_MUTATIONS: tuple[Callable[[random.Random, Body], None], ...] = (
    *(_swap_type, _swap_type, _drop, _rename, _repeat, _shuffle, _nest, _cross, _cross),
    *(_cross_alike, _cross_alike, _cross_alike, _spoil_text, _spoil_text, _shuffle, _repeat),
    *(_change_role, _change_role, _mix_ids, _scale, _enlarge),
)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 20))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _number(rng: random.Random, data: bytes) -> bytes:
    """Numbers that JSON does not have, or that no machine has."""
    strange = rng.choice((b"NaN", b"-Infinity", b"1e999", b"-0", b"0x10", b"1" * 400, b"1e-999", b"01"))
    return data.replace(rng.choice((b"3", b"true", b"null", b'"hi"')), strange, 1)


def _double(rng: random.Random, data: bytes) -> bytes:
    """A key twice, with other values."""
    key = rng.choice((b"messages", b"model", b"stream", b"input", b"tools", b"prompt", b"max_tokens"))
    return b'{"%b": %b, ' % (key, rng.choice((b"null", b"[]", b"1", b'"a"', b"{}"))) + data[1:]


_SPOILED: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_cut, _flip, _number, _double),
    *(lambda _, data: data.decode().encode("utf-16"), lambda _, data: b"\xef\xbb\xbf" + data),
    *(lambda _, data: data.replace(b"i", b"\xe9"), lambda _, data: data + b"}", lambda *_: b"", lambda *_: b"[]"),
    *(lambda *_: b"null", lambda *_: b"[" * 100_000, lambda *_: b'{"a":' * 50_000, lambda _, data: b"\x1f\x8b" + data),
)
