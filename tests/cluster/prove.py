"""The slow proofs of the router: four real servers with the model of the package, a real index, and `leftoff route`.

    python -m tests.cluster.prove                   all of them
    python -m tests.cluster.prove traffic agents    some of them; `grows` needs Ray

Each prints what it saw and ends with an error if something is not as it must be. `tests/store/prove.py` has those of
the store without a router.
"""

import argparse
import json
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count

import httpx

from lab.bench.process import Process
from tests.cli.running import serving
from tests.cluster.processes import ray_cluster, router
from tests.cluster.test_proxy import chat, known
from tests.patience import until
from tests.store.prove import WORDS, Fleet, Talk, Told, ask, fleet

NUM_SERVERS, NUM_TALKS, NUM_TURNS = 4, 20, 6
ALONE = ("--ctx", "8192", "--slots", "2", "--ram", "256", "--disk", "0")


@contextmanager
def routed(*more: str) -> Iterator[tuple[Fleet, Process]]:
    """Four servers that share a store, and a router that knows them all."""
    with fleet(NUM_SERVERS, *more) as servers, closing(router("--index", servers.index.url)) as route:
        assert until(lambda: len(known(route)) == NUM_SERVERS)
        yield servers, route


def play(url_of: Callable[[], str]) -> int:
    """Twenty conversations over five headers, four at a time; returns the tokens that were computed."""
    talks = [Talk(200 * (number % 5), header_words=400) for number in range(NUM_TALKS)]
    for number, talk in enumerate(talks):
        talk.num_turns = 3 * number  # so that those over one header say other things

    def tell(talk: Talk) -> int:
        return sum(talk.turn(url_of()).computed for _ in range(NUM_TURNS))

    with ThreadPoolExecutor(NUM_SERVERS) as pool:
        return sum(pool.map(tell, talks))


def traffic() -> None:
    """The held traffic: over four servers nothing is read that one server would not have read."""
    with serving(*ALONE, model="") as server:
        alone = play(lambda: server.url)
    with routed() as (_, route):
        through = play(lambda: route.url)
    print(
        f"  through the router {through / alone:.3f} of what one server computes: {through:,} of {alone:,}", flush=True
    )
    with ExitStack() as closing_all:
        urls = [closing_all.enter_context(serving(*ALONE, model="")).url for _ in range(NUM_SERVERS)]
        turns = count()
        around = play(lambda: urls[next(turns) % NUM_SERVERS])
    print(f"  by round robin without a store {around / alone:.3f}: {around:,}")
    assert through <= 1.05 * alone


def agents() -> None:
    """Six sub-agents over one new header, all at once, through the router: the header is read once."""
    header = f"You are a sub-agent. {' '.join(WORDS[1000:2200])}"
    tasks = [f"Task {number}: {' '.join(WORDS[50 * number : 50 * number + 30])}" for number in range(6)]
    chats = [[{"role": "system", "content": header}, {"role": "user", "content": task}] for task in tasks]
    with routed() as (_, route), ThreadPoolExecutor(6) as pool:
        told: list[Told] = [*pool.map(lambda chat: ask(route.url, chat), chats)]
    computed = sorted(each.computed for each in told)
    print(f"  computed: {computed}")
    assert sum(each > 1000 for each in computed) == 1, "the header was read more than once"


def kills() -> None:
    """kill -9 of a server, then of the router, in the middle of traffic: who had not begun is answered elsewhere."""
    with routed() as (servers, route), ThreadPoolExecutor(8) as pool:
        talks = [Talk(100 * number, header_words=300) for number in range(8)]
        assert all(told.text for told in pool.map(lambda talk: talk.turn(route.url), talks))
        asked = [pool.submit(talk.turn, route.url) for talk in talks]
        servers.servers[0].process.kill()
        outcomes = [_outcome(each.exception()) for each in asked]
        print(f"  a server was killed: {outcomes}")
        assert "refused" not in outcomes
        route.kill()
        with closing(router("--index", servers.index.url)) as other:
            assert until(lambda: len(known(other)) >= NUM_SERVERS - 1)
            print(
                f"  the router was killed, and another took over: {ask(other.url, talks[0].messages).computed} computed"
            )
        servers.servers[0].process.wait()


def hangs() -> None:
    """A server that is stopped takes connections and answers nothing: it is given up when its heartbeat ends."""
    chats = [[{"role": "user", "content": f"{number}: hello"}] for number in range(NUM_SERVERS)]
    with routed() as (servers, route), ThreadPoolExecutor(NUM_SERVERS) as pool:
        for server in servers.servers[1:]:
            server.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            told = [*pool.map(lambda chat: ask(route.url, chat), chats)]
            text = httpx.get(f"{route.url}/metrics").text
            retries = float(re.findall(r"^leftoff_route_retries_total (\S+)", text, re.MULTILINE)[0])
            print(f"  {len(told)} answered after {time.monotonic() - began:.1f} s, {retries:.0f} sent elsewhere")
            assert retries > 0
        finally:
            for server in servers.servers[1:]:
                server.process.send_signal(signal.SIGCONT)


def outages() -> None:
    """The index is stopped, killed and frozen under 20 conversations: none of them waits 5 s longer for that."""
    slots = ("--slots", "4")  # for all that are asked at once: nobody waits for another's reply
    with (
        fleet(3, *slots) as servers,
        closing(router("--index", servers.index.url)) as route,
        ThreadPoolExecutor(4) as pool,
    ):
        assert until(lambda: len(known(route)) == 3)
        talks = [Talk(150 * number, header_words=120) for number in range(NUM_TALKS)]
        index = servers.index
        calm, broken = 0.0, 0.0  # the longest wait, beside reading and writing
        for name, breaks, mends in (
            ("calm", _nothing, _nothing),
            ("stopped", index.stop, index.start),
            ("killed", index.kill, index.start),
            ("frozen", index.freeze, index.thaw),
            ("calm", _nothing, _nothing),
        ):
            told = _round(talks, route.url, pool, breaks, mends)
            waits = sorted(each.waited_s for each in told)
            calm, broken = (max(calm, waits[-1]), broken) if name == "calm" else (calm, max(broken, waits[-1]))
            computed = sum(each.computed for each in told)
            print(
                f"  {name}: worst wait {waits[-1]:.2f} s, median {waits[NUM_TALKS // 2]:.2f} s, {computed:,} computed"
            )
        print(f"  worst of all {broken:.2f} s, and {calm:.2f} s while nothing was broken")
        assert broken < calm + 5.0


def _round(
    talks: Sequence[Talk], url: str, pool: ThreadPoolExecutor, breaks: Callable[[], None], mends: Callable[[], None]
) -> list[Told]:
    """A turn of each; a part breaks while the first are on their way, and is mended while the last are."""
    few = NUM_TALKS // 4
    asked = [pool.submit(talk.turn, url) for talk in talks[:few]]
    asked[0].result()
    breaks()
    try:
        during = [*pool.map(lambda talk: talk.turn(url), talks[few:-few])]
        asked += [pool.submit(talk.turn, url) for talk in talks[-few:]]
    finally:
        mends()
    return [*during, *(each.result() for each in asked)]


def _nothing() -> None: ...


def grows() -> None:
    """On Ray, without an index: a second replica is started when there is much to do, and found."""
    with closing(ray_cluster("--replicas", "1:2")) as cluster, ThreadPoolExecutor(32) as pool:
        began, (first,) = time.monotonic(), (each["url"] for each in known(cluster))
        while len(known(cluster)) < 2:
            answers = pool.map(lambda _: chat(cluster.url, "Hello", max_tokens=100, ignore_eos=True), range(32))
            assert {answer.status_code for answer in answers} == {200}
        print(f"  a second one after {time.monotonic() - began:.1f} s")
        assert first in {each["url"] for each in known(cluster)}
        assert chat(cluster.url, "Hello").status_code == 200


def _outcome(error: BaseException | None) -> str:
    """Answered, cut off in the middle of an answer, or refused."""
    if error is None:
        return "answered"
    return "cut off" if isinstance(error, httpx.TransportError | json.JSONDecodeError) else "refused"


PROOFS: Sequence[Callable[[], None]] = (traffic, agents, kills, hangs, outages, grows)


def main() -> None:
    """Runs those that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=", ".join(proof.__name__ for proof in PROOFS))
    names = parser.parse_args().names
    for proof in PROOFS:
        if not names or proof.__name__ in names:
            print(f"{proof.__name__}: {proof.__doc__}", flush=True)
            proof()


if __name__ == "__main__":
    main()
