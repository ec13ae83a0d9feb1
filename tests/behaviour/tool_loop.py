"""A tool loop whose model spells its replies in any tokens: at temperature 1.5, and with calls forced by a grammar.

    python -m tests.behaviour.tool_loop [turns]

Plays it in each dialect, and prints how many tokens were computed, and how many were not there to be reused: what the
client says, and the marks around it. Without `--remember-replies` much more is computed: that is the control.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.server.server import serving
from tests.patience import PATIENCE_S

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "properties": {"query": {"type": "string", "maxLength": 24}, "limit": {"type": "number"}},
    "required": ["query", "limit"],
}
TOOL: Json = {"name": "search", "description": "Search the files of the project.", "parameters": SCHEMA}
_MAX_TOKENS = 48
_LIVELY: Json = {"temperature": 1.5}
ANY_TOKEN: Json = {"temperature": 9, "top_k": 0, "top_p": 1, "min_p": 0}  # hardly ever the tokenizer's own spelling
_RESULT = '{"matches": %d, "files": ["notes.txt", "main.py"], "next": null}'
_QUESTION = "And what about part %d of the project?"


@dataclass(frozen=True)
class Reply:
    """What a client keeps of a reply: the items for its history, and the ids of the calls."""

    items: list[Json]
    call_ids: list[str]
    may_be_lost: bool = False  # it may end in half a call, for which the API has no place


class Dialect:
    """A client that keeps its history in the form of one API, and writes calls anew when it sends them back."""

    path: str
    can_force = True

    def body(self, history: list[Json], *, forced: bool) -> Json:
        raise NotImplementedError

    def sampling(self, values: Json) -> Json:
        return values

    def reply(self, answer: Json) -> Reply:
        raise NotImplementedError

    def result(self, call_id: str, text: str) -> Json:
        return {"role": "tool", "tool_call_id": call_id, "content": text}


class OpenAi(Dialect):
    path = "/v1/chat/completions"

    def body(self, history: list[Json], *, forced: bool) -> Json:
        choice = {"tool_choice": "required"} if forced else {}
        tools = [{"type": "function", "function": TOOL}]
        return {"messages": history, "tools": tools, "max_tokens": _MAX_TOKENS, "enable_thinking": False} | choice

    def reply(self, answer: Json) -> Reply:
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        for call in calls:
            call["function"]["arguments"] = anew(call["function"]["arguments"])
        kept = {"role": "assistant", "content": message.get("content") or ""} | ({"tool_calls": calls} if calls else {})
        return Reply([kept], [call["id"] for call in calls])


class Anthropic(Dialect):
    path = "/v1/messages"

    def body(self, history: list[Json], *, forced: bool) -> Json:
        choice = {"tool_choice": {"type": "any"}} if forced else {}
        tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": SCHEMA}]
        return {"model": "any", "messages": history, "tools": tools, "max_tokens": _MAX_TOKENS} | choice

    def reply(self, answer: Json) -> Reply:
        blocks = [block for block in answer["content"] if block["type"] in ("text", "tool_use")]
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        return Reply([{"role": "assistant", "content": blocks}] if blocks else [], calls)

    def result(self, call_id: str, text: str) -> Json:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}


class Responses(Dialect):
    path = "/v1/responses"

    def body(self, history: list[Json], *, forced: bool) -> Json:
        choice = {"tool_choice": "required"} if forced else {}
        tools = [{"type": "function", "strict": False, **TOOL}]
        return {"input": history, "tools": tools, "max_output_tokens": _MAX_TOKENS, "store": False} | choice

    def reply(self, answer: Json) -> Reply:
        items = [item for item in answer["output"] if item["type"] in ("message", "function_call")]
        for item in items:
            if item["type"] == "function_call":
                item["arguments"] = anew(item["arguments"])
        return Reply(items, [item["call_id"] for item in items if item["type"] == "function_call"])

    def result(self, call_id: str, text: str) -> Json:
        return {"type": "function_call_output", "call_id": call_id, "output": text}


class Ollama(Dialect):
    path = "/api/chat"
    can_force = False

    def body(self, history: list[Json], *, forced: bool) -> Json:
        assert not forced, "Ollama has no tool_choice"
        tools = [{"type": "function", "function": TOOL}]
        return {"model": "any", "messages": history, "tools": tools, "stream": False, "think": False}

    def sampling(self, values: Json) -> Json:
        return {"options": {"num_predict": _MAX_TOKENS} | values}

    def reply(self, answer: Json) -> Reply:
        message = answer["message"]
        call_ids = [str(index) for index, _ in enumerate(message.get("tool_calls") or ())]
        return Reply([message], call_ids, may_be_lost=answer["done_reason"] == "length")

    def result(self, call_id: str, text: str) -> Json:  # noqa: ARG002
        return {"role": "tool", "tool_name": TOOL["name"], "content": text}


def anew(arguments: str) -> str:
    """As a client in JavaScript writes them."""
    try:
        value = json.loads(
            arguments, parse_float=lambda text: int(float(text)) if float(text) % 1 == 0 else float(text)
        )
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, OverflowError):
        return arguments


DIALECTS = {"openai": OpenAi(), "anthropic": Anthropic(), "responses": Responses(), "ollama": Ollama()}


@dataclass
class Tally:
    """Tokens of a whole loop."""

    computed: int = 0
    unavoidable: int = 0
    num_calls: int = 0
    finishes: list[str] = field(default_factory=list)
    history: list[Json] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.computed / self.unavoidable


@contextmanager
def server(**changes: object) -> Iterator[tuple[ModelHost, httpx.Client]]:
    """Without reading ahead, which would hide what a request has to compute."""
    values: dict[str, Any] = {"model": str(default_model()), "ctx": 8192, "threads": 1, "slots": 1, "ram": 512}
    values |= {"disk": 0, "read_ahead": False} | changes
    with (
        open_host(Settings(**values)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
    ):
        yield host, http


def play(
    http: httpx.Client, dialect: Dialect, turns: int, *, forced: bool, sampling: Json = _LIVELY, seed: int = 1
) -> Tally:
    """One loop: a call is answered with a result, and a text with another question."""
    assert http.delete("/cache").status_code == 200
    tally = Tally()
    history = tally.history
    history.append({"role": "user", "content": "What is in the project?"})
    known = 0
    for turn in range(turns):
        body = dialect.body(history, forced=forced) | dialect.sampling(sampling | {"seed": seed + turn})
        answer = http.post(dialect.path, json=body)
        assert answer.status_code == 200, answer.text
        record = http.get("/cache/requests?n=1").json()["requests"][0]
        tally.computed += record["computed"]
        tally.unavoidable += record["prompt_tokens"] - known
        tally.finishes.append(record["finish"])
        reply = dialect.reply(answer.json())
        known = record["prompt_tokens"]
        if not reply.may_be_lost:  # the token that was sampled last is not in the sequence yet
            known += record["generated"] - (record["finish"] != "end")
        tally.num_calls += len(reply.call_ids)
        history += reply.items
        history += [dialect.result(call_id, _RESULT % turn) for call_id in reply.call_ids]
        if not reply.call_ids:
            history.append({"role": "user", "content": _QUESTION % turn})
    return tally


def main(turns: int) -> int:
    worst = 0.0
    for remembers in (True, False):
        with server(remember_replies=remembers) as (_, http):
            for name, dialect in DIALECTS.items():
                for forced in (True, False) if dialect.can_force else (False,):
                    tally = play(http, dialect, turns, forced=forced)
                    worst = max(worst, tally.ratio if remembers else 0.0)
                    how = "forced calls" if forced else "free"
                    memory = "" if remembers else ", replies not remembered"
                    print(
                        f"{name:10} {how:12} {turns} turns, {tally.num_calls} calls: computed {tally.computed:,} of "
                        f"{tally.unavoidable:,} unavoidable: {tally.ratio:.3f}{memory}",
                        flush=True,
                    )
    return int(worst > 1.01)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
