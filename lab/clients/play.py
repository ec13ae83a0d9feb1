"""Plays a client against a server: turns with a tool, a fresh session, and what happens to an agent in a day."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from lab.bench.process import Process
from lab.clients.client import Client, Place
from lab.clients.notes_mcp import NOTES
from lab.clients.tap import Body, Exchange, Tap, offered, reply_id

_ROOT = Path(__file__).parents[2]
_LONGEST_S = 1800
_REPORTS = 256
_SLACK = 4  # tokens between a reply and what follows it
_ASK_TOOL = "Please call read_note for todo.txt."
_ASK_TOOL_AGAIN = "Please call read_note for plan.txt."
_ASK_PICTURE = "Please call take_screenshot."
_MORE = ("Hello! My name is Anna.", "What is my name?", "What is the capital of France?", "What is 2+3?")
_RULES = "# Rules of the house\n\n" + "".join(
    f"- Rule {number}: lamp {number} hangs in room {number * 7 % 101} and must be lit before {number % 12} o'clock.\n"
    for number in range(360)
)
_SHARE_WITH_RULES = 0.97  # of the first prompt of a fresh session


@dataclass(frozen=True)
class Step:
    """One run of the client. `extends` says that its first request goes on where the last step ended."""

    title: str
    questions: tuple[str, ...]
    extends: bool = False
    commits: bool = False  # before it: a commit and a changed file in the folder where the client works
    restarts: bool = False  # before it: the server
    uses_tool: bool = False  # a note that was read must be in what the client sends
    compacts: bool = False  # it replaces the conversation by a summary: what is asked for that is not checked
    compacted: bool = False  # its first request has the summary: only the header is known


@dataclass(frozen=True)
class Asked:
    """A request as the server's reuse report tells it."""

    prompt_tokens: int
    reused: int
    computed: int
    generated: int


@dataclass(frozen=True)
class Done:
    """A step that was played: its requests, and what came out otherwise than it should."""

    step: Step
    asked: tuple[Asked, ...]
    problems: tuple[str, ...]


def steps_of(client: Client) -> list[Step]:
    """All steps, in their order."""
    if not client.is_chat:
        return [Step("all requests", ())]
    if not client.go_on:
        turns = (_ASK_TOOL, *(_MORE[number % len(_MORE)] for number in range(client.num_turns - 1)))
        title = f"{len(turns)} turns, the first with a tool" if turns[1:] else "a tool is called"
        return [Step(title, turns, uses_tool=True), _FRESH, *([_FRESH_LATER] if not turns[1:] else [])]
    return [
        Step("a tool is called", (_ASK_TOOL,), uses_tool=True) if client.calls_notes else _FIRST,
        Step("second turn", _MORE[:1], extends=True),
        Step("third turn", _MORE[1:2], extends=True),
        Step("the same after a commit and a change", _MORE[2:3], extends=True, commits=True),
        Step("the same after a restart of the server", _MORE[3:4], extends=True, restarts=True),
        *([_PICTURE, _NEXT] if client.sees_pictures else []),
        *([_TOOL_AGAIN, _NEXT, _TOOL_AGAIN] if client.calls_notes else []),
        *([Step("it compacts", (client.compacts,), extends=True, compacts=True)] if client.compacts else []),
        *([_COMPACTED, _NEXT] if client.compacts else []),
        _FRESH,
        _FRESH_LATER,
    ]


_FIRST = Step("first turn", ("What is the capital of Greece?",))
_NEXT = Step("the next turn", _MORE[1:2], extends=True)
_PICTURE = Step("a tool shows a picture", (_ASK_PICTURE,), extends=True)
_TOOL_AGAIN = Step("a tool is called again", (_ASK_TOOL_AGAIN,), extends=True, uses_tool=True)
_COMPACTED = Step("the turn after compaction", _MORE[2:3], extends=True, compacted=True)
_FRESH = Step("fresh session", ("What is the capital of Italy?",))
_FRESH_LATER = Step("fresh session after a commit and a change", ("What is the capital of Spain?",), commits=True)


class Player:
    """Runs the steps of a client in a folder of its own, through a tap in front of a server."""

    def __init__(self, client: Client, place: Place, server: Process, tap: Tap) -> None:
        self._client = client
        self._place = place
        self._server = server
        self._tap = tap
        self._work = place.home / "work"
        self._num_commits = 0

    def play(self) -> Iterator[Done]:
        """Each step when it is done."""
        self._prepare()
        last: Asked | None = None
        for step in steps_of(self._client):
            done = self._step(step, last)
            last = done.asked[-1] if done.asked else last
            yield done

    def _prepare(self) -> None:
        """A folder under git, with one commit, and the client's settings."""
        self._work.mkdir(parents=True)
        for name, text in self._client.files.items():
            path = self._place.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._place.fill(text))
        if self._client.rules:
            (self._work / self._client.rules).write_text(_RULES)
        self._git("init", "--quiet", "--initial-branch=main")
        self._commit()

    def _step(self, step: Step, last: Asked | None) -> Done:
        if step.commits:
            self._commit()
        if step.restarts:
            self._server.stop()
            self._server.start()
            self._tap.target = self._server.url
        num_before = len(self._tap.exchanges)
        failure = self._run(step)
        exchanges = self._tap.exchanges[num_before:]
        turns = self._turns(step, exchanges) if not step.compacts else []
        with httpx.Client(base_url=self._server.url) as http:
            asked = tuple(reuse_of(http, reply_id(turn.reply)) for turn in turns)
        problems = [*failure, *refused(exchanges), *unanswered(step, exchanges)]
        if self._client.is_chat and not step.compacts:
            is_long = self._client.rules and not step.extends
            share = _SHARE_WITH_RULES if is_long else self._client.share
            problems += too_much([turn.kind for turn in turns], asked, last, share)
        return Done(step, asked, tuple(problems))

    def _turns(self, step: Step, exchanges: list[Exchange]) -> list[Exchange]:
        """The requests of the conversation; those without tools, for titles and the like, are left out."""
        answered = [one for one in exchanges if one.body and one.is_answered]
        turns = [one for one in answered if not self._client.is_chat or self._is_turn(one.body or {})]
        following = "retells" if self._client.retells else "goes on"
        for number, turn in enumerate(turns):
            turn.kind = following if number or (step.extends and not step.compacted) else "begins"
            turn.kind = "begins" if self._client.reorders else turn.kind
            turn.kind = turn.kind if self._client.is_chat else "alone"
        return turns

    def _is_turn(self, body: Body) -> bool:
        if self._client.offers:
            return self._client.offers in offered(body)
        return bool(body.get("tools")) or not self._client.calls_notes

    def _run(self, step: Step) -> list[str]:
        command = self._client.go_on if step.extends else self._client.begin
        try:
            done = subprocess.run(
                [*map(self._place.fill, command), *step.questions],
                cwd=self._work,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"did not end within {_LONGEST_S} s"]
        (self._place.home / "output.txt").open("a").write(f"## {step.title}\n{done.stdout}\n{done.stderr}\n")
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        return [f"exit code {done.returncode}: {said}"] if done.returncode else []

    def _environment(self) -> dict[str, str]:
        """An environment of its own, with none of the user's keys and settings."""
        path = f"{self._place.bin}:{self._place.node.parent}:{os.environ['PATH']}"
        own = {name: self._place.fill(value) for name, value in self._client.environment.items()}
        launcher = {"PYTHONPATH": str(_ROOT)}  # `leftoff launch` of this checkout
        return {"PATH": path, "HOME": str(self._place.home), "LANG": "C.UTF-8", **launcher, **own}

    def _commit(self) -> None:
        """A commit, and then a changed file and a new one."""
        self._num_commits += 1
        (self._work / "story.txt").write_text(f"Chapter {self._num_commits}.\n" * self._num_commits)
        self._git("add", ".")
        self._git("commit", "--quiet", "--message", f"Write chapter {self._num_commits}")
        (self._work / "story.txt").write_text("The end.\n")
        (self._work / f"draft{self._num_commits}.txt").write_text("Once upon a time.\n")

    def _git(self, *arguments: str) -> None:
        who = ("-c", "user.name=Anna", "-c", "user.email=anna@example.org")
        subprocess.run(["git", *who, *arguments], cwd=self._work, check=True, capture_output=True)


def reuse_of(http: httpx.Client, request_id: str) -> Asked:
    """As the server reports it."""
    records = http.get("/cache/requests", params={"n": _REPORTS}).raise_for_status().json()["requests"]
    (record,) = (record for record in records if record["id"] == request_id)
    return Asked(*(record[key] for key in ("prompt_tokens", "reused", "computed", "generated")))


def refused(exchanges: list[Exchange]) -> Iterator[str]:
    """Requests that were answered with an error."""
    for exchange in exchanges:
        if exchange.status >= httpx.codes.BAD_REQUEST and exchange.method == "POST":
            yield f"{exchange.path} was answered {exchange.status}: {exchange.reply.decode(errors='replace')[:500]}"


def unanswered(step: Step, exchanges: list[Exchange]) -> Iterator[str]:
    """Whether the client has run the tool and given its answer to the model."""
    sent = [str(exchange.body) for exchange in exchanges]
    if step.uses_tool and not any(note in body for note in NOTES.values() for body in sent):
        yield "the tool's answer was not given to the model"


def too_much(kinds: Sequence[str], asked: Sequence[Asked], last: Asked | None, share: float) -> Iterator[str]:
    """Prompts of which too much was read: one that goes on reads what is new, a fresh one has its header already."""
    if not asked:
        yield "no request was made"
    before = last
    for number, (kind, one) in enumerate(zip(kinds, asked, strict=True), 1):
        if kind != "begins" and before is not None:
            known = before.prompt_tokens + (before.generated if kind == "goes on" else 0)
            new = max(0, one.prompt_tokens - known)
            if one.computed > new + _SLACK:
                yield f"request {number} read {one.computed} tokens, though only {new} are new"
        elif before is not None and one.reused < share * one.prompt_tokens:
            yield f"only {one.reused} of {one.prompt_tokens} tokens were reused: less than {share:.0%}"
        before = one
