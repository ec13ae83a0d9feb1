"""`python -m lab.speed.long [MODEL]`: what the next turn of a long request costs the server beside the model.

The turn before was as long, so that all but a few tokens are known. What passes until the first token comes is divided
by the part of the server it passes in; what the model computes is subtracted. Figures are medians of several turns.
"""

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import leftoff.chat.chat
import leftoff.chat.prompts
import leftoff.server.http.body
from leftoff.cache.cache import Cache
from leftoff.cache.tiers import Tiers
from leftoff.chat.header_rules import Rules
from leftoff.chat.template.render import ChatTemplate
from leftoff.chat.tokenizer import SegmentTokenizer, Tokenised
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.scheduler.scheduler import Scheduler
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.raw_prompts import RawPrompts
from leftoff.server.server import serving
from tests.factory import model_path
from tests.factory.vocabulary import TEXT

_GOAL_MS = 15.0
_REPLY_TOKENS = 4
_WORDS = sorted(set(TEXT.split()))
_STAGES = ("body", "decode", "rules", "template", "spans", "tokens", "look-up", "state", "rest", "model")
_REQUEST_STAGES = _STAGES[: _STAGES.index("state")]
_IDLE_LOOKS = 20


@dataclass(frozen=True)
class Case:
    """One kind of request: milliseconds by stage, beside the model, and until the client has the first token."""

    name: str
    stages: dict[str, float]
    beside_ms: float
    first_token_ms: float
    prompt_tokens: int

    @property
    def request_ms(self) -> float:
        """What the length of the request costs, from its body to the look-up."""
        return sum(self.stages[stage] for stage in _REQUEST_STAGES)


@dataclass
class Clock:
    """Adds up the time spent in each stage, without what passes in a stage that one calls."""

    now: Callable[[], float] = time.perf_counter
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    began: float = 0.0
    is_running: bool = False
    _inner: threading.local = field(default_factory=threading.local)

    def start(self) -> None:
        self.spent.clear()
        self.began, self.is_running = self.now(), True

    def stop(self) -> dict[str, float]:
        """Milliseconds by stage; what no stage has taken is the rest."""
        self.is_running = False
        total = self.now() - self.began
        rest = total - sum(self.spent.values())
        return {name: 1000 * (rest if name == "rest" else self.spent[name]) for name in _STAGES}

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
            start = self.now()
            if stage == "decode" and self.is_running:  # it is called when the whole body is there
                self.spent["body"] = start - self.began
            try:
                return function(*args, **kwargs)
            finally:
                seconds = self.now() - start
                if self.is_running:
                    self.spent[stage] += seconds - self._inner.seconds
                self._inner.seconds = outer + seconds

        return timed


@contextmanager
def timed_stages(host: ModelHost, now: Callable[[], float] = time.perf_counter) -> Iterator[Clock]:
    """Puts a clock around the functions in which each stage passes."""
    dll = host.model.library.dll
    places: list[tuple[str, Any, str]] = [
        ("decode", leftoff.server.http.body, "decode"),
        ("decode", ChatRequest, "conversation"),
        ("decode", RawPrompts, "read"),
        ("rules", Rules, "apply"),
        ("template", ChatTemplate, "render"),
        ("spans", leftoff.chat.prompts, "render_with_spans"),
        ("tokens", SegmentTokenizer, "tokenise"),
        ("spans", Tokenised, "positions"),
        ("look-up", leftoff.chat.chat, "VerbatimReplies"),
        ("look-up", Cache, "plan"),
        ("look-up", Cache, "begin"),
        ("look-up", Scheduler, "_admit"),
        ("state", Tiers, "save_point"),  # snapshots, while the client waits
        ("state", type(host.engine.memory), "prepare"),
        *(("model", dll, name) for name in ("llama_decode", "llama_sampler_sample", "llama_synchronize")),
    ]
    clock = Clock(now)
    before = [(owner, name, getattr(owner, name)) for _, owner, name in places]
    try:
        for stage, owner, name in places:
            setattr(owner, name, clock.around(stage, getattr(owner, name)))
        yield clock
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


class Client:
    """Sends one request after the other, each when all that follows the last one is done."""

    def __init__(self, host: ModelHost, url: str, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._address = url.removeprefix("http://")

    def ask(self, path: str, body: dict[str, Any]) -> tuple[dict[str, float], str]:
        """What passed until the first token, by stage, and the text of the reply."""
        data = json.dumps(body | {"stream": True, "temperature": 0, "ignore_eos": True}).encode()
        self._wait_until_idle()
        connection = http.client.HTTPConnection(self._address, timeout=3600)
        connection.connect()
        self._clock.start()
        connection.request("POST", path, data, {"content-type": "application/json"})
        response = connection.getresponse()
        stages, texts = dict[str, float](), list[str]()
        for line in response:
            if line.startswith(b"data: {"):
                texts.append(_text(json.loads(line.removeprefix(b"data: "))))
                if texts[-1] and not stages:
                    stages = self._clock.stop()
        connection.close()
        assert response.status == 200, texts
        return stages, "".join(texts)

    def _wait_until_idle(self) -> None:
        num_idle = 0
        while num_idle < _IDLE_LOOKS:
            is_busy = self._host.call(lambda: bool(self._host.scheduler.runs)).result()
            num_idle = 0 if is_busy or self._host.lanes.num_running else num_idle + 1
            time.sleep(0.01)


def _text(chunk: dict[str, Any]) -> str:
    if "content" in chunk:
        return str(chunk["content"])
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))


class Writer:
    """Makes up texts of words that are one token each."""

    def __init__(self, host: ModelHost, seed: int = 1) -> None:
        self._vocabulary = host.model.vocabulary
        self._random = random.Random(seed)

    def text(self, num_words: int) -> str:
        return "".join(f" {word}" for word in self._random.choices(_WORDS, k=num_words))

    def tokens(self, num_tokens: int) -> list[int]:
        size = self._vocabulary.size
        return self._random.choices(range(size // 2, size - 16), k=num_tokens)

    def messages(self, num_messages: int, num_tokens: int) -> list[dict[str, Any]]:
        """The messages of an agent: of each four, one calls a tool and one has its result."""
        num_words = max(1, num_tokens // num_messages - 8)
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.text(num_words)}]
        for number in range(num_messages - 1):
            call_id = f"call{number // 4:05}"
            messages.append(
                (
                    {"role": "user", "content": self.text(num_words)},
                    {"role": "assistant", "content": self.text(num_words // 2), "tool_calls": [self._call(call_id)]},
                    {"role": "tool", "tool_call_id": call_id, "content": self.text(num_words)},
                    {"role": "assistant", "content": self.text(num_words)},
                )[number % 4]
            )
        return messages

    def _call(self, call_id: str) -> dict[str, Any]:
        arguments = json.dumps({"path": self.text(2), "num_lines": 40})
        return {"id": call_id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}


_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Use the right tool, then tell what you found.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "num_lines": {"type": "integer"}},
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "write_file", "list_files", "search", "run")
]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.speed.long", description=__doc__)
    parser.add_argument("model", metavar="MODEL", nargs="?", default=None, help="a GGUF file (default: a tiny hybrid)")
    parser.add_argument("--tokens", metavar="N", type=int, default=131_072)
    parser.add_argument("--messages", metavar="N", type=int, default=300)
    parser.add_argument("--conversations", metavar="N", type=int, default=40, help="others in the tree")
    parser.add_argument("--turns", metavar="N", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="the CPU time of the process: for a machine with other work")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    args = parser.parse_args(argv)
    model = args.model or str(model_path("lfm2-window"))
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model=model, ctx=args.tokens + 8192, slots=2, ram=1024, cache_dir=folder, threads=1)
        now = time.process_time if args.cpu else time.perf_counter
        with open_host(settings) as host, serving(host) as url, timed_stages(host, now) as clock:
            client, writer = Client(host, url, clock), Writer(host)
            cases = [
                chat(f"chat, {args.messages} messages", client, writer, args),
                prompt("token ids", client, writer, args),
            ]
            crowd(host, args.conversations, args.tokens)
            cases.append(chat(f"chat, {args.conversations} others in the tree", client, writer, args))
    if args.json:
        print(json.dumps({"goal_ms": _GOAL_MS, "cases": [*map(asdict, cases)]}))
    else:
        _show(cases, is_cpu=args.cpu)
    return 0


def chat(name: str, client: Client, writer: Writer, args: argparse.Namespace) -> Case:
    messages, found = writer.messages(args.messages, args.tokens), []
    for _ in range(args.turns + 2):
        body = {"messages": messages, "tools": _TOOLS, "max_tokens": _REPLY_TOKENS}
        stages, reply = client.ask("/v1/chat/completions", body)
        found.append(stages)
        messages = [
            *messages,
            {"role": "assistant", "content": reply},
            {"role": "user", "content": writer.text(8)},
        ]
    return _case(name, found[2:], args.tokens)  # the first one is cold, and the second comes after a cold one


def prompt(name: str, client: Client, writer: Writer, args: argparse.Namespace) -> Case:
    tokens, found = writer.tokens(args.tokens), []
    for _ in range(args.turns + 2):
        stages, _ = client.ask("/completion", {"prompt": tokens, "n_predict": _REPLY_TOKENS})
        found.append(stages)
        tokens = tokens + writer.tokens(8)
    return _case(name, found[2:], args.tokens)


def crowd(host: ModelHost, num_conversations: int, num_tokens: int) -> None:
    """Puts conversations into the trees, as the cache remembers those whose data was evicted."""
    rng, namespace = np.random.default_rng(2), next(iter(host.cache.ram.trees))

    def insert() -> None:
        tokens = rng.integers(0, host.model.vocabulary.size, num_tokens, np.int32)
        for tier in host.cache.tiers:
            tier.insert(namespace, tokens)

    for _ in range(num_conversations):
        host.call(insert).result()


def _case(name: str, found: Sequence[dict[str, float]], num_tokens: int) -> Case:
    stages = {stage: median(turn[stage] for turn in found) for stage in _STAGES}
    totals = [sum(turn.values()) for turn in found]
    beside = median(total - turn["model"] for total, turn in zip(totals, found, strict=True))
    return Case(name, stages, beside, median(totals), num_tokens)


def _show(cases: Sequence[Case], *, is_cpu: bool) -> None:
    what = "CPU time" if is_cpu else "time"
    title = f"{what} of the next turn of {cases[0].prompt_tokens:,} tokens, in ms"
    table = Table("", *(case.name for case in cases), title=title, title_justify="left")
    for stage in _STAGES:
        table.add_row(stage, *(f"{case.stages[stage]:.1f}" for case in cases))
    table.add_row("body to look-up", *(f"{case.request_ms:.1f}" for case in cases))
    table.add_row("beside the model", *(f"{case.beside_ms:.1f}" for case in cases))
    table.add_row("first token", *(f"{case.first_token_ms:.1f}" for case in cases))
    console = Console(markup=False, highlight=False)
    console.print(table)
    verdict = "reached" if all(case.request_ms <= _GOAL_MS for case in cases) else "missed"
    console.print(f"Goal: at most {_GOAL_MS:g} ms from the body to the look-up, {verdict}.")


if __name__ == "__main__":
    sys.exit(main())
