"""Plays a script on a server to its end, and counts."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lab.bench.account import Account
from lab.bench.ask import Ask, Messages, Script
from lab.bench.client import Answer
from lab.bench.reader import Reader
from lab.bench.side import Station
from lab.bench.workload import Setup
from leftoff.chat.overflow import Cutter
from leftoff.types import Prompt, Tokens


@dataclass
class Run:
    """One workload, played once on one server. `unavoidable` is None where the server does not tell its tokens."""

    prompt_tokens: int = 0
    computed: int = 0  # with what was read while idle
    idle: int = 0
    cached: int = 0
    generated: int = 0
    unavoidable: int | None = None
    num_refused: int = 0
    num_miscounted: int = 0  # prompts that were read with other tokens than the server's template makes
    wall_ms: float = 0.0
    first_token_ms: list[float] = field(default_factory=list)
    peak_bytes: int | None = None

    def add(self, answer: Answer) -> None:
        if answer.reply.is_refused:
            self.num_refused += 1
            return
        self.prompt_tokens += answer.prompt_tokens
        self.computed += answer.computed
        self.cached += answer.cached
        self.generated += answer.generated
        self.first_token_ms.append(answer.first_token_ms)


def play(script: Script, station: Station, setup: Setup) -> Run:
    """The tokens are counted between the requests, while no time is taken."""
    run, counter, idle_before = Run(), _counter(station, setup), station.idle_tokens
    asks = next(script, None)
    while asks:
        run.idle = station.idle_tokens - idle_before  # what is read after the last reply serves nobody here
        answers = _ask_at_once(asks, station, run)
        for answer in answers:
            run.add(answer)
        if counter:
            counter.count(asks, answers, station, run)
        try:
            asks = script.send([answer.reply for answer in answers])
        except StopIteration:
            asks = None
    run.computed += run.idle
    run.unavoidable = counter.account.unavoidable if counter else None
    run.peak_bytes = station.peak_bytes
    return run


def _ask_at_once(asks: Sequence[Ask], station: Station, run: Run) -> list[Answer]:
    if any(ask.after_restart for ask in asks):
        station.restart()
    if station.forgets:
        station.client.forget()
    began = time.perf_counter()
    if len(asks) == 1:
        answers = [station.client.ask(asks[0])]
    else:
        with ThreadPoolExecutor(len(asks)) as pool:
            answers = list(pool.map(station.client.ask, asks))
    run.wall_ms += 1000 * (time.perf_counter() - began)
    return answers


class _Counter:
    """Keeps the account of a play, by the tokens of the server it is played on.

    A window that is outgrown is cut as leftoff cuts it, once and in a big step, for every server alike: whoever reads
    more than that has avoided less.
    """

    def __init__(self, window: int | None) -> None:
        self.account = Account()
        self._cutter = Cutter(window) if window else None

    def count(self, asks: Sequence[Ask], answers: Sequence[Answer], station: Station, run: Run) -> None:
        reader = Reader(station.client.http)
        heard = [(ask, answer) for ask, answer in zip(asks, answers, strict=True) if not answer.reply.is_refused]
        prompts = [self._tokens(reader, ask) for ask, _ in heard]
        for prompt in prompts:
            self.account.ask(prompt)
        for (ask, answer), prompt in zip(heard, prompts, strict=True):
            self.account.show(prompt, reader.reply(ask, answer))
            run.num_miscounted += ask.counted is None and prompt.size != answer.prompt_tokens

    def _tokens(self, reader: Reader, ask: Ask) -> Tokens:
        def make(messages: Messages) -> Prompt:
            return Prompt(reader.prompt(messages, ask))

        messages = ask.messages if ask.counted is None else ask.counted
        return (self._cutter.fit(messages, make, "").prompt if self._cutter else make(messages)).tokens


def _counter(station: Station, setup: Setup) -> _Counter | None:
    reader = Reader(station.client.http)
    return _Counter(reader.window if setup.cuts else None) if reader.can_read else None
