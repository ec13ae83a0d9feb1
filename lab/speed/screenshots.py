"""An agent that looks at a screenshot in every turn, on leftoff in each dialect, and on llama-server beside it.

A client sends all screenshots with every turn. Counted is what each server computes of the prompts, how many pictures
it encodes, and how long the client waits; and for leftoff, how many it decodes and what no server could have avoided
to compute. The same requests go to llama-server, over the very library leftoff uses. Weights of projectors are random
unless `--mmproj` names one: what is computed does not depend on them.

    python -m lab.speed.screenshots
    python -m lab.speed.screenshots --markdown docs/benchmarks.md
"""

import argparse
import base64
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from lab.bench.account import Account
from lab.bench.process import Process
from lab.report import table, write_part
from lab.speed.pictures import screenshot
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.scheduler.run import Run
from leftoff.server.reply.stream import ReplyStream
from leftoff.server.server import serving
from tests.behaviour.histories.models import projector_for

NUM_TURNS = 20
_WIDTH, _HEIGHT = 640, 352  # 220 tokens for Qwen's projectors
_CONTEXT_TOKENS = 16384
_REPLY_TOKENS = 8
_SIDES = ("leftoff", "llama-server")
_PATIENCE_S = 600
_HEAD = ("server", "dialect", "computed, all turns", "of the last turn", "unavoidable", "decoded", "encoded", "seconds")
Json = dict[str, Any]
Turns = list[Json]


@dataclass(frozen=True)
class Asked:
    """One request, and how the conversation goes on after its reply."""

    path: str
    body: Json
    go_on: Callable[[Json], Turns]


@dataclass(frozen=True)
class Turn:
    """What one request took. Of a server that does not tell, None."""

    computed: int
    encoded: int
    seconds: float
    unavoidable: int | None = None
    decoded: int | None = None


def _chat(turns: Turns, number: int, shot: str) -> Asked:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shot}"}}
    asked = [*turns, {"role": "user", "content": [{"type": "text", "text": f"look {number}"}, image]}]
    body = {"messages": asked, "max_tokens": _REPLY_TOKENS, "temperature": 0}
    return Asked("/v1/chat/completions", body, lambda reply: [*asked, reply["choices"][0]["message"]])


def _messages(turns: Turns, number: int, shot: str) -> Asked:
    """As Claude Code reads a picture: with a tool, whose result has it."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"{number}.png"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": shot}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [image]}
    begun = turns or [{"role": "user", "content": "read the pictures"}]
    asked = [*begun, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    body = {"messages": asked, "max_tokens": _REPLY_TOKENS, "tools": tools}
    return Asked("/v1/messages", body, lambda reply: [*asked, {"role": "assistant", "content": reply["content"]}])


def _responses(turns: Turns, number: int, shot: str) -> Asked:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{shot}"}
    asked = [*turns, {"role": "user", "content": [{"type": "input_text", "text": f"watch {number}"}, image]}]
    body = {"input": asked, "store": False, "max_output_tokens": _REPLY_TOKENS}
    return Asked("/v1/responses", body, lambda reply: [*asked, *reply["output"]])


def _ollama(turns: Turns, number: int, shot: str) -> Asked:
    asked = [*turns, {"role": "user", "content": f"view {number}", "images": [shot]}]
    body = {"messages": asked, "stream": False, "options": {"num_predict": _REPLY_TOKENS}}
    return Asked("/api/chat", body, lambda reply: [*asked, reply["message"]])


DIALECTS = {"chat completions": _chat, "Messages": _messages, "Responses": _responses, "Ollama": _ollama}
Ask = Callable[[Turns, int, str], Asked]


def shots(first: int, make: Callable[[int], bytes]) -> Iterator[str]:
    """The base64 of one screenshot after the other."""
    return (base64.b64encode(make(number)).decode() for number in count(first))


class Loop:
    """The agent's loop on one server; `turns` sends the next request for each screenshot."""

    def __init__(self, http: httpx.Client, model: str, ask: Ask) -> None:
        self._http = http
        self._model = model
        self._ask = ask

    def turns(self, screenshots: Iterable[str]) -> Iterator[tuple[Json, float]]:
        """Each reply, and the seconds until it was there."""
        said: Turns = []
        for number, shot in enumerate(screenshots):
            asked = self._ask(said, number, shot)
            start = time.perf_counter()
            answer = self._http.post(asked.path, json={"model": self._model, **asked.body})
            seconds = time.perf_counter() - start
            assert answer.status_code == 200, answer.text
            reply = answer.json()
            yield reply, seconds
            said = asked.go_on(reply)


class Observed:
    """A host in this process whose runs are seen, so that it is known what nobody could have avoided."""

    def __init__(self, host: ModelHost, http: httpx.Client) -> None:
        assert host.prompts.encoder is not None
        self._host, self._http, self._encoder = host, http, host.prompts.encoder
        self._runs: list[Run] = []

    @contextmanager
    def seen(self) -> Iterator[None]:
        submit = self._host.scheduler.submit

        def seen(run: Run) -> None:
            self._runs.append(run)
            submit(run)

        self._host.scheduler.submit = seen  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._host.scheduler.submit = submit  # type: ignore[method-assign]

    def play(self, model: str, ask: Ask, screenshots: Iterable[str]) -> Iterator[tuple[Turn, Json]]:
        """Each turn, and the reuse report of its request."""
        account, before = Account(), self._counts
        with self.seen():
            for _, seconds in Loop(self._http, model, ask).turns(screenshots):
                report = self._http.get("/cache/requests").json()["requests"][0]
                (run,) = self._runs
                self._runs.clear()
                assert isinstance(run.sink, ReplyStream)
                unavoidable = account.ask(run.prompt.tokens)
                read = [piece.token for piece in run.sink.pieces[:-1]]  # the last was chosen, and no more
                account.show(run.prompt.tokens, np.array(read, np.int32))
                counts = self._counts
                decoded, encoded = (now - then for now, then in zip(counts, before, strict=True))
                before = counts
                yield Turn(report["computed"], encoded, seconds, unavoidable, decoded), report

    @property
    def _counts(self) -> tuple[int, int]:
        return self._host.pictures.num_decoded, self._encoder.num_encoded


def play(model: Path, projector: Path, num_turns: int) -> list[list[str]]:
    """A row for each dialect on leftoff, and for the first one on llama-server, which takes turns with it."""
    settings = Settings(model=str(model), mmproj=str(projector), ctx=_CONTEXT_TOKENS, slots=4, ram=4096, disk=0)
    rows: list[list[str]] = []
    with open_host(settings) as host, serving(host) as url, httpx.Client(base_url=url, timeout=_PATIENCE_S) as http:
        observed = Observed(host, http)
        for index, (name, ask) in enumerate(DIALECTS.items()):
            looked = [*islice(shots(1000 * index, _screenshot), num_turns)]
            ours = (turn for turn, _ in observed.play(host.name_for(None), ask, looked))
            if ask is not _chat:
                rows.append(row("leftoff", name, [*ours]))
                continue
            with _llama_server(model, projector) as peer:
                turns = [*zip(ours, _on_llama_server(peer, looked), strict=True)]
            rows += [row(side, name, [*each]) for side, each in zip(_SIDES, zip(*turns, strict=True), strict=True)]
    return rows


@contextmanager
def _llama_server(model: Path, projector: Path) -> Iterator[httpx.Client]:
    flags = ["--mmproj", str(projector), "--ctx", str(_CONTEXT_TOKENS), "--slots", "4", "--ram", "4096"]
    command = [sys.executable, "-m", "lab.bench.peer", str(model), *flags]
    with closing(Process(command)) as process, httpx.Client(base_url=process.url, timeout=_PATIENCE_S) as http:
        yield http


def _on_llama_server(http: httpx.Client, looked: Iterable[str]) -> Iterator[Turn]:
    for number, (reply, seconds) in enumerate(Loop(http, "", _chat).turns(looked), 1):
        computed, num_tokens = reply["timings"]["prompt_n"], reply["usage"]["prompt_tokens"]
        # it encodes the pictures that it computes: what it has encoded it does not keep
        yield Turn(computed, round(computed / num_tokens * number), seconds)


def _screenshot(number: int) -> bytes:
    return screenshot(number, _WIDTH, _HEIGHT)


def row(server: str, dialect: str, turns: list[Turn]) -> list[str]:
    unavoidable = [turn.unavoidable for turn in turns if turn.unavoidable is not None]
    decoded = [turn.decoded for turn in turns if turn.decoded is not None]
    return [
        *(server, dialect, f"{sum(turn.computed for turn in turns):,}", f"{turns[-1].computed:,}"),
        *(f"{sum(unavoidable):,}" if unavoidable else "", str(sum(decoded)) if decoded else ""),
        *(str(sum(turn.encoded for turn in turns)), f"{sum(turn.seconds for turn in turns):.1f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--mmproj", type=Path)
    parser.add_argument("--turns", type=int, default=NUM_TURNS)
    parser.add_argument("--markdown", type=Path, help="write the table into this file")
    options = parser.parse_args()
    projector = options.mmproj or projector_for(options.model, "qwen3vl_merger")
    shown = table(_HEAD, play(options.model, projector, options.turns), words=("server", "dialect"))
    print(shown)
    if options.markdown:
        write_part(options.markdown, "screenshots", shown.rstrip())


if __name__ == "__main__":
    main()
