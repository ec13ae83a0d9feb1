"""Kills a whole server at random moments, again and again on the same folder, and looks at what it has left each time.

    python -m tests.behaviour.kill_server 200 --seed 0

The server is `leftoff serve`, with several people talking to it. Every other one has little room on disk, so that it
also removes all the time. After each kill the index and every file in it must be sound, and what the index had for
others to see in the moment of the kill must still be there. The next server resumes from as far as the index says it
can, and has removed what nobody knows. Every token that came, also of replies that were cut, is what a server with an
empty cache says.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import httpx

from tests.cli.running import Server, serving
from tests.disk.remains import Remains
from tests.factory import Scale
from tests.patience import until
from tests.server.alike import NUM_TOP
from tests.server.cold import ROUNDING, num_ties
from tests.server.crowd import Talker, Told, connected
from tests.server.wire import Texts, Wire, wired

NUM_CLIENTS = 4
NUM_CONVERSATIONS = 3  # of each
ROOMY_MIB, TIGHT_MIB = 64, 1
_SERVER = ("--ctx", "4096", "--slots", "3", "--ram", "2", "--log-level", "warning")
_PATIENCE_S = 1.5  # for a write: there may be nothing to write


class Moment(Enum):
    """When it is killed. The longest wait in seconds is the range of the random one."""

    STARTING = 0.1  # after it has taken the folder
    READING = 0.5  # prompts, with replies on their way
    WRITING = 0.01  # after an unfinished file was seen
    COMMITTING = 0.003  # after the index began to change
    RESTING = 0.7  # after the last reply: what waited is written
    GOING_ON = 0.3  # after a rest: it reads while it writes


@dataclass
class Tally:
    moments: Counter[str] = field(default_factory=Counter)
    num_seen: int = 0  # rows in the index, at all kills
    num_unfinished: int = 0  # files
    num_unknown: int = 0
    num_replies: int = 0
    num_cut: int = 0
    num_tokens: int = 0
    num_ties: int = 0
    num_resumed: int = 0  # tokens, by the first question of each life

    def __str__(self) -> str:
        moments = ", ".join(f"{count} {name.lower().replace('_', ' ')}" for name, count in self.moments.items())
        return (
            f"killed {self.moments.total()} times ({moments})\n"
            f"{self.num_seen} rows seen in the moments of the kills, none lost, all of sound files\n"
            f"{self.num_unfinished} unfinished and {self.num_unknown} unknown files left, gone after the next start\n"
            f"{self.num_resumed} tokens resumed from disk by first questions\n"
            f"{self.num_replies} replies ({self.num_cut} of them cut) of {self.num_tokens} tokens, "
            f"as from an empty cache but for {self.num_ties} ties"
        )


class Lives:
    """Of servers on one folder, one after the other."""

    def __init__(self, root: Path, cold: Wire, seed: int) -> None:
        header = Texts(seed).text(150)
        self.tally = Tally()
        self._remains = Remains(root)
        self._cold = cold
        self._rng = random.Random(seed)
        seeds = range(100 * seed, 100 * seed + NUM_CLIENTS)
        self._talkers = [Talker(seed, header, NUM_CONVERSATIONS) for seed in seeds]
        self._told: list[Told] = []
        self._seen: dict[str, bool] = {}

    def live(self, moment: Moment, disk_mib: int) -> None:
        self.tally.moments[moment.name] += 1
        self._seen = {}
        with ExitStack() as stack:
            if moment is Moment.STARTING:
                stack.enter_context(self._killed_when_it_has_the_folder())
            where = ("--disk", str(disk_mib), "--cache-dir", str(self._remains.root))
            server = stack.enter_context(serving(*_SERVER, *where))
            if moment is not Moment.STARTING:
                assert server.url, f"it did not start: {server.log}"
                self._be_killed(server, moment, is_roomy=disk_mib == ROOMY_MIB)
            assert server.process.wait() == -signal.SIGKILL, f"it ended by itself: {server.log}"
            assert server.log == "", "there was nothing to complain of"
        self._remains.check(self._seen, is_roomy=disk_mib == ROOMY_MIB)
        self._count()

    def take_told(self) -> list[Told]:
        told, self._told = self._told, []
        return told

    def _count(self) -> None:
        num_unfinished = sum(path.suffix != "" for path in self._remains.left_over)
        self.tally.num_seen += len(self._seen)
        self.tally.num_unfinished += num_unfinished
        self.tally.num_unknown += len(self._remains.left_over) - num_unfinished

    # --- a life

    def _be_killed(self, server: Server, moment: Moment, *, is_roomy: bool) -> None:
        assert not self._remains.left_over & self._remains.files, "what nobody knew is gone"
        with connected(server.url) as http, ThreadPoolExecutor(NUM_CLIENTS) as clients:
            self._ask_first(http, is_roomy=is_roomy)
            talks = self._talk(http, clients, 99 if moment is Moment.READING else 2)
            if moment is not Moment.READING:
                wait(talks)
                self._wait_for(moment)
            if moment is Moment.GOING_ON:
                talks += self._talk(http, clients, 99)
            time.sleep(self._rng.uniform(0, moment.value))
            self._kill(server.process.pid)
            self._told += [told for talk in talks for told in talk.result()]

    def _ask_first(self, http: httpx.Client, *, is_roomy: bool) -> None:
        """Alone, so that nothing but the disk can know anything of it."""
        talker = self._rng.choice(self._talkers)
        conversation = talker.choose()
        resumable = self._remains.resumable(self._cold.prompt(conversation.messages))
        told = talker.ask(http, conversation)
        assert told.cut_by is None
        self._told.append(told)
        if not told.is_left:  # else it did not hear of it
            self.tally.num_resumed += told.answer.cached
            if is_roomy:  # else it may have been removed to make room
                assert told.answer.cached >= resumable, "the index has more than the server found"

    def _talk(self, http: httpx.Client, clients: ThreadPoolExecutor, num_questions: int) -> list[Future[list[Told]]]:
        def talk(talker: Talker) -> list[Told]:
            told: list[Told] = []
            while len(told) < num_questions and not (told and told[-1].cut_by):
                told.append(talker.ask(http, talker.choose()))
            return told

        return [clients.submit(talk, talker) for talker in self._talkers]

    def _wait_for(self, moment: Moment) -> None:
        if moment is Moment.WRITING:
            _poll(lambda: self._remains.has_unfinished, _PATIENCE_S)
        elif moment is Moment.COMMITTING:
            before = self._remains.log_stat
            _poll(lambda: self._remains.log_stat != before, _PATIENCE_S)
        elif moment is Moment.GOING_ON:
            time.sleep(Moment.GOING_ON.value)

    @contextmanager
    def _killed_when_it_has_the_folder(self) -> Iterator[None]:
        before = self._remains.holder

        def kill() -> None:
            assert until(lambda: self._remains.holder not in (None, before))
            time.sleep(self._rng.uniform(0, Moment.STARTING.value))
            pid = self._remains.holder
            assert pid is not None
            self._kill(pid)

        thread = threading.Thread(target=kill)
        thread.start()
        yield
        thread.join()

    def _kill(self, pid: int) -> None:
        """In between it stands still: what others see in its index then, they must see after its end."""
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended by itself"
        self._seen = self._remains.rows()
        os.kill(pid, signal.SIGKILL)


def kill_servers(num_kills: int, seed: int) -> Tally:
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        wired("qwen35", Scale(), slots=1) as cold,
        ThreadPoolExecutor(1) as aside,
    ):
        lives = Lives(Path(folder), cold, seed)
        moments: list[Moment] = []
        checked: Future[None] | None = None
        for number in range(num_kills):
            moments = moments or rng.sample([*Moment], len(Moment))  # each as often
            lives.live(moments.pop(), ROOMY_MIB if number % 2 else TIGHT_MIB)
            if checked is not None:
                checked.result()
            told = lives.take_told()
            checked = aside.submit(_compare, cold, told, lives.tally)  # while the next one starts
        if checked is not None:
            checked.result()
        return lives.tally


def _compare(cold: Wire, every: list[Told], tally: Tally) -> None:
    for told in filter(lambda told: told.answer.tokens, every):
        ties = num_ties(cold, told.messages, told.answer)
        if not ties:  # a token may be right by chance: so is hardly its probability
            (first,) = cold.chat(told.messages, 1, num_top=NUM_TOP).top
            token = told.answer.tokens[0]
            difference = abs(told.answer.top[0][token] - first[token])
            assert difference < ROUNDING, f"the first token's log-probability is off by {difference:.3f}"
        tally.num_ties += ties
        tally.num_replies += 1
        tally.num_cut += told.cut_by is not None
        tally.num_tokens += len(told.answer.tokens)


def _poll(condition: Callable[[], bool], patience_s: float) -> bool:
    """Without a pause: moments are short."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("num_kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.monotonic()
    tally = kill_servers(args.num_kills, args.seed)
    print(tally)
    print(f"in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
