"""`python -m lab.walk` counts the files that one chat turn runs through, from the parsed request to its first token.

The turn is the second of a conversation: POST /v1/chat/completions, streamed, with the model that ships with leftoff,
given to the ASGI application as an HTTP server hands it over. It ends for the engine's thread when the first token has
been handed out, and for the event loop when that token is sent to the client.

A *move* is execution passing from one file of `leftoff/` into another: of all calls on one thread, in order, each that
goes to another file than the call before it. Resuming a coroutine or a generator is a call. Returns are not counted,
nor is code of other packages: a handler that starlette calls is a move from our file that was called last there.
How often the event loop wakes up in between is a matter of timing, so that of several turns the one with the fewest
moves counts.
"""

import argparse
import asyncio
import gc
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from starlette.types import ASGIApp, Message

import leftoff
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.server.app import build_app
from leftoff.server.hosts import Hosts
from leftoff.server.http.origins import KnownHosts

_PACKAGE = Path(leftoff.__file__).parent
_PREFIX = f"{_PACKAGE}/"
_CONVERSATIONS = 5
_IDLE_STEPS = 5
_LAST_CALL_OF_THE_ENGINE = "ReplyStream.token"
_SYSTEM = "You are a helpful assistant who answers in one short sentence."
_QUESTIONS = ("What is the capital of France?", "And what is the capital of Italy?")


@dataclass
class Walk:
    """The files of one turn, in the order in which they were entered first, and how often execution moved to each."""

    moves_to: Counter[str] = field(default_factory=Counter)

    @property
    def num_files(self) -> int:
        return len(self.moves_to)

    @property
    def num_moves(self) -> int:
        return self.moves_to.total()


class _Tracer:
    """Follows every thread that is started after it was installed. Counts only between `begin` and `end`."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        self._here: dict[int, str] = {}  # by thread: the file of ours that was called last
        self._ended: set[int] = set()  # threads whose part of the turn is over

    def install(self) -> None:
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def uninstall(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def begin(self) -> Walk:
        self._here.clear()
        self._ended.clear()
        self._walk = Walk()
        return self._walk

    def end(self) -> None:
        self._walk = None

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        walk, file = self._walk, frame.f_code.co_filename
        if walk is None or not file.startswith(_PREFIX):
            return
        thread = threading.get_ident()
        if thread in self._ended:
            return
        if event == "call" and self._here.get(thread) != file:
            self._here[thread] = file
            walk.moves_to[file.removeprefix(_PREFIX)] += 1
        elif event == "return" and frame.f_code.co_qualname == _LAST_CALL_OF_THE_ENGINE:
            self._ended.add(thread)


def walk_turn(num_conversations: int = _CONVERSATIONS) -> Walk:
    """Starts a host in this process and plays conversations of two turns on it."""
    tracer = _Tracer()
    tracer.install()
    try:
        settings = Settings(model=str(default_model()), ctx=4096, threads=1, slots=2, ram=128, disk=0, draft="off")
        with open_host(settings) as host:
            app = build_app(Hosts(host), settings, KnownHosts.of("127.0.0.1", "127.0.0.1"))
            walks = [asyncio.run(_second_turn(app, host, tracer, number)) for number in range(num_conversations)]
    finally:
        tracer.uninstall()
    return min(walks, key=lambda walk: walk.num_moves)


async def _second_turn(app: ASGIApp, host: ModelHost, tracer: _Tracer, number: int) -> Walk:
    messages = [{"role": "system", "content": f"{_SYSTEM} ({number})"}, {"role": "user", "content": _QUESTIONS[0]}]
    reply = await _chat(app, messages, lambda: None)
    messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": _QUESTIONS[1]}]
    await _until_idle(host)
    gc.collect()
    gc.disable()  # what is collected meanwhile is no part of the turn
    try:
        walk = tracer.begin()
        await _chat(app, messages, tracer.end)
    finally:
        gc.enable()
    await _until_idle(host)
    return walk


async def _chat(app: ASGIApp, messages: list[dict[str, str]], on_first_token: Callable[[], None]) -> str:
    """The text of a streamed reply. The client reads as fast as it is written to, and stays."""
    body = json.dumps({"messages": messages, "stream": True, "temperature": 0, "max_tokens": 24}).encode()
    texts: list[str] = []
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            await asyncio.Event().wait()  # for ever: it does not hang up
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        was_silent = not any(texts)
        texts.extend(_contents(message.get("body", b"")))
        if was_silent and any(texts):
            on_first_token()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", str(len(body)).encode())],
        "state": {},
    }
    await app(scope, receive, send)
    return "".join(texts)


def _contents(body: bytes) -> list[str]:
    lines = (line.removeprefix(b"data: ") for line in body.splitlines())
    chunks = [json.loads(line) for line in lines if line.startswith(b"{")]
    return [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]


async def _until_idle(host: ModelHost) -> None:
    """Waits until what follows a reply is done: the next prompt is read ahead, and the slot's state is saved."""
    num_idle = 0
    while num_idle < _IDLE_STEPS:  # between two such calls the engine's thread takes a step, or tidies up
        is_busy = host.lanes.num_running or await host.between_steps(lambda: bool(host.scheduler.runs))
        num_idle = 0 if is_busy else num_idle + 1
        await asyncio.sleep(0.005)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.walk", description="Counts the files of one chat turn.")
    parser.add_argument("--list", action="store_true", help="the files in order, and the moves to each")
    wants_list = parser.parse_args(argv).list
    walk = walk_turn()
    for file, num_moves in walk.moves_to.items() if wants_list else ():
        print(f"{num_moves:4}  {file}")
    print(f"{walk.num_files} files, {walk.num_moves} moves between files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
