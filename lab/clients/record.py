"""`python -m lab.clients.record` turns what clients sent into recordings for the tests.

It reads what `python -m lab.clients` has left in build/clients/captures. The texts of vendors and of this machine go:
every word of prose becomes another one of the same length, long texts become shorter in proportion, and of many tools
some stay. What the rules for headers match keeps its form, for the recordings are played to prove those rules. Parts
of replies become references: the server that plays a recording will reply otherwise. Equal captures, equal files.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.clients.notes_mcp import TOOLS
from lab.clients.said import Parts, parts_of
from lab.clients.tap import NO_CALL, NO_THOUGHT, choice_of
from leftoff.chat.agent_texts import AGENT_TEXTS, LATE_SECTIONS
from leftoff.config import BILLING_LINE

CAPTURES, RECORDINGS = Path("build/clients/captures"), Path("tests/lab/clients/recordings")
REPLY = "$reply"  # {"$reply": [number of the request, name of the part]}
_SAME = "$same"  # {"$same": number of the value in the table}

_PROMPT_CHARACTERS = 1_000  # of the longest prompt
_MAX_TOOLS = 2
_MAX_TURNS = 4
_REPLY_TOKENS = 8
_CALL_TOKENS = 64
_SHORT = 48  # values that are not worth a row of the table

# What the rules match, and tags: their form stays.
_FORMS = re.compile(
    "|".join(
        f"(?:{form})"
        for form in (
            *(BILLING_LINE, *LATE_SECTIONS, *(text.pattern for text in AGENT_TEXTS)),
            r'</?[a-z_-]+(?: name="\w+")?>',
        )
    )
)
_WORD = re.compile(r"[^\W\d_]+|\d+")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32,64}")
_PATH = re.compile(r"(?:/[\w.@+-]+){2,}")
_WORDS = (
    *("a", "to", "the", "with", "water", "garden", "windows", "mountain", "carpenter", "playground", "countryside"),
    *("constitution", "international"),
)


@dataclass(frozen=True)
class Request:
    """One request of a recording: what is sent where, and how it stands to the one before it."""

    kind: str  # begins, goes on, retells (goes on, with the call in other words), alone (no turn of a chat)
    path: str
    body: Any


def write(recording: Sequence[Request], path: Path) -> None:
    """Every value that stands in several bodies is written once, in a table."""
    table: dict[str, tuple[int, Any]] = {}

    def packed(value: Any) -> Any:  # noqa: ANN401
        key = json.dumps(value)
        if len(key) < _SHORT:
            return value
        if key not in table:
            inner = _mapped(value, packed)
            table[key] = len(table), inner
        return {_SAME: table[key][0]}

    requests = [{"kind": one.kind, "path": one.path, "body": packed(one.body)} for one in recording]
    lines = [json.dumps(value, ensure_ascii=False) for _, value in table.values()]
    said = [json.dumps(request, ensure_ascii=False) for request in requests]
    rows = ",\n".join
    path.write_text(f'{{"table": [\n{rows(lines)}\n], "requests": [\n{rows(said)}\n]}}\n')


def read(path: Path) -> list[Request]:
    """A recording as it was before it was written."""
    stored = json.loads(path.read_text())

    def unpacked(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict) and value.keys() == {_SAME}:
            return unpacked(stored["table"][value[_SAME]])
        return _mapped(value, unpacked)

    return [Request(one["kind"], one["path"], unpacked(one["body"])) for one in stored["requests"]]


def recorded(captures: Sequence[dict[str, Any]]) -> list[Request]:
    """The recording of one client."""
    replies: list[Parts] = []
    requests: list[Request] = []
    begun = 0
    captures = _chosen(captures)
    called = _called(captures)
    scale = min(1.0, _PROMPT_CHARACTERS / max(len(json.dumps(capture["body"])) for capture in captures))
    for capture in captures:
        parts = parts_of(capture["reply"])
        body = capture["body"]
        if capture["kind"] != "alone":
            body = _limited(_with_fewer_tools(body, called), parts)
        begun = len(requests) if capture["kind"] in ("begins", "alone") else begun
        body = _References(replies, begun).put_into(body)
        requests.append(Request(capture["kind"], capture["path"], _disguised(body, scale)))
        replies.append(parts)
    return requests


def _chosen(captures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first turns, and the first one of the last fresh session: enough to prove, and soon played."""
    turns = [capture for capture in captures if capture["kind"] != "aside"]
    return [*turns[:_MAX_TURNS], *[turn for turn in turns[_MAX_TURNS:] if turn["kind"] == "begins"][-1:]]


def _limited(body: dict[str, Any], reply: Parts) -> dict[str, Any]:
    """Short replies that call a tool where one was called, and nowhere else."""
    body = {key: value for key, value in body.items() if key != "guided_regex"}  # the proxy's
    name = next((key for key in body if key in ("max_tokens", "max_completion_tokens", "max_output_tokens")), None)
    name = name or ("max_output_tokens" if "input" in body else "max_tokens")
    if "tool0" in reply:
        choice = choice_of(body, reply["tool0"])
        return {**body, name: _CALL_TOKENS, "temperature": 0, "tool_choice": choice, "logit_bias": NO_THOUGHT}
    return {**body, name: _REPLY_TOKENS, "temperature": 0, "logit_bias": NO_CALL}


def _called(captures: Sequence[dict[str, Any]]) -> set[str]:
    """The names of the tools that some request is to call, those in a namespace without it."""
    parts = [parts_of(capture["reply"]) for capture in captures]
    names = {reply["tool0"] for reply in parts if "tool0" in reply} | {tool["name"] for tool in TOOLS}
    return {name.rpartition("__")[2] for name in names}


def _with_fewer_tools(body: dict[str, Any], called: set[str]) -> dict[str, Any]:
    """The request with the tools that are called, and the first of the others."""
    tools = body.get("tools") or []
    needed = [tool for tool in tools if any(f'{name}"' in json.dumps(tool) for name in called)]
    others = [tool for tool in tools if tool not in needed][: max(0, _MAX_TOOLS - len(needed))]
    return {**body, "tools": [tool for tool in tools if tool in needed or tool in others]} if tools else body


@dataclass
class _References:
    """Replaces parts of replies by references. A body tells the replies in their order, so the search goes forward."""

    replies: Sequence[Parts]
    number: int  # of the reply that was found last

    def put_into(self, value: Any) -> Any:  # noqa: ANN401
        for number in range(self.number, len(self.replies)):
            for name, part in self.replies[number].items():
                if not name.startswith("tool") and value in (part, part.strip() if isinstance(part, str) else part):
                    self.number = number
                    return {REPLY: [number, name]}
        return _mapped(value, self.put_into)


def _disguised(value: Any, scale: float) -> Any:  # noqa: ANN401
    """Prose without its words; names, numbers and references as they are."""
    if isinstance(value, str):
        return disguise(value, scale) if re.search(r"\s", value) else _invented(value)
    return _mapped(value, lambda inner: _disguised(inner, scale))


def disguise(text: str, scale: float = 1.0) -> str:
    """Other words of the same lengths, with the forms kept; of each stretch of prose the first part, by `scale`."""
    pieces, end = [], 0
    for form in _FORMS.finditer(text):
        pieces += [_prose(text[end : form.start()], scale), _invented(form.group())]
        end = form.end()
    return "".join([*pieces, _prose(text[end:], scale)])


def _prose(text: str, scale: float) -> str:
    if len(text) > _SHORT:
        words = text[: max(_SHORT, int(len(text) * scale))].rpartition(" ")[0]
        text = words + ("\n" if text.endswith("\n") else "")
    return _WORD.sub(lambda word: _other_word(word.group()), text)


def _other_word(word: str) -> str:
    """Another word of the same length. One that is longer than those of the list is put together from them."""
    if word.isdigit():
        return "".join(str(_hash(word) // 10**place % 10) for place in range(len(word)))
    other = ""
    while len(other) < len(word):
        other += _WORDS[min(len(word) - len(other), len(_WORDS)) - 1]
    return other.capitalize() if word[0].isupper() else other


def _invented(text: str) -> str:
    """Ids and paths of this machine, replaced."""
    text = _UUID.sub(lambda found: _like(found.group()), text)
    return _PATH.sub(lambda path: "/home/anna/work" if "/clients/" in path.group() else path.group(), text)


def _like(found: str) -> str:
    digits = iter(hashlib.sha256(found.encode()).hexdigest())
    return "".join(letter if letter == "-" else next(digits) for letter in found[:64])


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: function(inner) for key, inner in value.items()}
    return [function(inner) for inner in value] if isinstance(value, list) else value


def _captured(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for client in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(client.glob("*.json"))
        if files:
            yield client.name, [json.loads(file.read_text()) for file in files]


def main(captures: Path = CAPTURES, recordings: Path = RECORDINGS) -> None:
    recordings.mkdir(parents=True, exist_ok=True)
    for name, captured in _captured(captures):
        path = recordings / f"{name}.json"
        write(recorded(captured), path)
        print(f"{path}: of {len(captured)} requests, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
