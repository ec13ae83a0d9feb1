"""The slow proofs of the shared store: real servers with the model of the package, a real Redis, an S3 endpoint.

    python -m tests.store.prove                 all of them
    python -m tests.store.prove moving partition    some of them

Each prints what it saw and ends with an error if something is not as it must be: a text that differs from that of one
server, tokens that were read twice, a request that hangs, or reuse that does not come back.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import httpx

from leftoff.engine.binding.library import load_library
from tests.cli.running import Server, serving
from tests.factory import model_path
from tests.patience import until
from tests.store.parts import S3, Redis, Wire, redis, s3, s3_environment, wire

WORDS = " ".join(
    Path(__file__).parents[2].joinpath("docs", name).read_text() for name in ("memory.md", "http-api.md")
).split()
REPLY_TOKENS = 24
SLOWEST_S = 120.0  # of a request: a hang takes longer
# Texts are compared: without --deterministic a near tie may turn out otherwise, since prompts are resumed elsewhere.
FLAGS = ("--ctx", "8192", "--slots", "2", "--ram", "256", "--disk", "0", "--deterministic")


@dataclass(frozen=True)
class Told:
    """A reply, and what was read for it."""

    text: str
    prompt_tokens: int
    computed: int
    waited_s: float = 0.0  # beside reading and writing


@dataclass
class Talk:
    """A conversation that can be told to any server."""

    first_word: int
    header_words: int = 500
    messages: list[dict[str, str]] = field(default_factory=list)
    num_turns: int = 0

    def turn(self, url: str) -> Told:
        if not self.messages:
            header = " ".join(WORDS[self.first_word : self.first_word + self.header_words])
            self.messages = [{"role": "system", "content": f"You are helpful. {header}"}]
        start = (7 * self.first_word + 40 * self.num_turns) % (len(WORDS) - 40)
        self.messages.append({"role": "user", "content": " ".join(WORDS[start : start + 40])})
        told = ask(url, self.messages)
        self.messages.append({"role": "assistant", "content": told.text})
        self.num_turns += 1
        return told


def ask(url: str, messages: Sequence[dict[str, str]]) -> Told:
    body = {"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0}
    began = time.monotonic()
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=SLOWEST_S)
    answer.raise_for_status()
    shown, took_s = answer.json(), time.monotonic() - began
    usage, timings = shown["usage"], shown["timings"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    waited_s = took_s - (timings["prompt_ms"] + timings["predicted_ms"]) / 1000
    return Told(shown["choices"][0]["message"]["content"], usage["prompt_tokens"], computed, waited_s)


@dataclass
class Fleet:
    """Servers that share a store, and its parts."""

    index: Redis
    store_url: str
    servers: list[Server] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def settle(self) -> None:
        """Waits until nothing waits to be written anywhere: the next turn may come to any server."""
        assert until(lambda: all(store_of(url)["waiting"] == 0 for url in self.urls)), "not all is written"


def store_of(url: str) -> dict[str, int]:
    tiers = httpx.get(f"{url}/cache", timeout=SLOWEST_S).json()["tiers"]
    return next(tier for tier in tiers if tier["name"] == "store")


@contextmanager
def fleet(num_servers: int, *more: str, bucket: S3 | None = None, port: int | None = None) -> Iterator[Fleet]:
    """Over a folder, or a bucket behind `port`."""
    with ExitStack() as parts:
        index = parts.enter_context(redis())
        folder = parts.enter_context(tempfile.TemporaryDirectory())
        url = bucket.url if bucket is not None else f"file://{folder}/store"
        if bucket is not None:
            parts.enter_context(s3_environment(port or bucket.port))
        made = Fleet(index, url)
        for _ in range(num_servers):
            made.servers.append(parts.enter_context(replica(made, *more)))
        yield made


def replica(made: Fleet, *more: str, model: str = "") -> AbstractContextManager[Server]:
    return serving(*FLAGS, "--store", made.store_url, "--index", made.index.url, *more, model=model)


def alone(talks: Sequence[int], num_turns: int, header_words: int = 500) -> list[list[Told]]:
    """What one server says, without a store."""
    with serving(*FLAGS, model="") as server:
        made = [Talk(first, header_words) for first in talks]
        return [[talk.turn(server.url) for _ in range(num_turns)] for talk in made]


def compare(told: Sequence[Told], wanted: Sequence[Told]) -> float:
    """The tokens computed over those that one server computes; all texts must be the same."""
    assert [each.text for each in told] == [each.text for each in wanted], "another text than on one server"
    return sum(each.computed for each in told) / sum(each.computed for each in wanted)


# --- what must hold


def moving() -> None:
    """A conversation that moves to another of four servers at every turn."""
    num_turns, talks = 8, [0, 400]
    wanted = alone(talks, num_turns)
    with s3() as bucket, fleet(4, bucket=bucket) as servers:
        for first, expected in zip(talks, wanted, strict=True):
            talk, told = Talk(first), []
            for turn in range(num_turns):
                told.append(talk.turn(servers.urls[turn % 4]))
                servers.settle()
            ratio = compare(told, expected)
            shown = [each.computed for each in told], [each.computed for each in expected]
            print(f"  computed {ratio:.3f} of one server's: {shown[0]} against {shown[1]}")
            assert ratio <= 1.05


def killed_server() -> None:
    """kill -9 of the server that a conversation is on: another goes on from all that was stored."""
    wanted = alone([0], 6)[0]
    with fleet(2) as servers:
        talk, told = Talk(0), []
        for turn in range(6):
            if turn == 3:
                servers.servers[0].process.kill()
            told.append(talk.turn(servers.urls[0 if turn < 3 else 1]))
            if turn < 3:
                servers.settle()
        ratio = compare(told, wanted)
    print(f"  computed {ratio:.3f} of one server's")
    assert ratio <= 1.05


def broken(
    what: str, breaks: Callable[[], None], mends: Callable[[], None], servers: Fleet, *, loses: bool = False
) -> None:
    """A part breaks in the middle of a conversation that moves, and comes back: texts as ever, and reuse is back."""
    wanted = alone([0], 9)[0]
    talk, told, slowest = Talk(0), list[Told](), 0.0
    for turn in range(9):
        if turn == 3:
            breaks()
        if turn == 6:
            mends()
            assert until(lambda: is_sharing(servers)), f"after {what} was mended, nothing is shared"
            if not loses:
                servers.settle()
        began = time.monotonic()
        told.append(talk.turn(servers.urls[turn % len(servers.urls)]))
        slowest = max(slowest, time.monotonic() - began)
        if not 3 <= turn < 6:
            servers.settle()
    compare(told, wanted)
    back = sum(each.computed for each in told[7:]) / sum(each.computed for each in wanted[7:])
    during = sum(each.computed for each in told[3:6]) / sum(each.computed for each in wanted[3:6])
    print(f"  {what}: computed {during:.2f} times one server's meanwhile, {back:.3f} after; slowest {slowest:.1f} s")
    print(*(f"    {line}" for server in servers.servers for line in warnings_of(server)), sep="\n")
    assert back <= 1.05


def warnings_of(server: Server) -> list[str]:
    return [line for line in server.log.splitlines() if " fails (" in line or " is back" in line or "index had" in line]


def is_sharing(servers: Fleet) -> bool:
    """What the first server stores, the last one finds."""
    probe = Talk(int(time.monotonic() * 10) % 2000, 300)
    probe.turn(servers.urls[0])
    time.sleep(0.5)
    return probe.turn(servers.urls[-1]).computed < 250


def killed_index() -> None:
    """kill -9 of Redis, which forgets all: it is rebuilt from the objects."""
    with fleet(2) as servers:
        broken("Redis", servers.index.kill, servers.index.start, servers)


def frozen_index() -> None:
    """A Redis that answers nothing: as a partition looks."""
    with fleet(2) as servers:
        broken("a frozen Redis", servers.index.freeze, servers.index.thaw, servers)


def killed_store() -> None:
    """kill -9 of the S3 endpoint, which forgets all."""
    with s3() as bucket, fleet(2, bucket=bucket) as servers:
        broken("the store", bucket.kill, bucket.start, servers, loses=True)


def partition() -> None:
    """The wire to the store is cut: connections stand, and nothing comes."""
    with s3() as bucket, wire(bucket.port) as between, fleet(2, bucket=bucket, port=between.port) as servers:
        broken("a cut wire", lambda: cut(between, True), lambda: cut(between, False), servers)


def cut(between: Wire, is_cut: bool) -> None:
    between.is_cut = is_cut


def full_store() -> None:
    """A bucket that takes nothing more: what it has is still fetched."""
    with s3() as bucket, wire(bucket.port) as between, fleet(2, bucket=bucket, port=between.port) as servers:
        broken("a full store", lambda: fill(between, True), lambda: fill(between, False), servers)


def fill(between: Wire, is_full: bool) -> None:
    between.is_full = is_full


def slow_store() -> None:
    """200 ms per call: what is quicker to read is read, and what is not is fetched; nothing is waited for longer."""
    wanted = alone([0], 6, header_words=1500)[0]
    with s3() as bucket, wire(bucket.port) as between, fleet(2, bucket=bucket, port=between.port) as servers:
        between.delay_s = 0.2
        talk, told = Talk(0, header_words=1500), []
        for turn in range(6):
            told.append(talk.turn(servers.urls[turn % 2]))
            servers.settle()
        ratio = compare(told, wanted)
        print(f"  computed {ratio:.3f} of one server's: {[each.computed for each in told]}")
    assert told[1].computed < 1000, "a header that takes seconds to read is worth a call of 200 ms"


def clocks() -> None:
    """Two servers whose clocks are ten minutes apart."""
    wanted = alone([0], 6)[0]
    path = next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if path is None:
        print("  not tried: it takes libfaketime (apt-get install libfaketime)")
        return
    with redis() as index, tempfile.TemporaryDirectory() as folder, ExitStack() as parts:
        made = Fleet(index, f"file://{folder}/store")
        made.servers.append(parts.enter_context(replica(made)))
        with patch.dict("os.environ", LD_PRELOAD=path, FAKETIME="+10m", FAKETIME_DONT_FAKE_MONOTONIC="1"):
            made.servers.append(parts.enter_context(replica(made)))
        talk, told = Talk(0), []
        for turn in range(6):
            told.append(talk.turn(made.urls[turn % 2]))
            made.settle()
        ratio = compare(told, wanted)
    print(f"  computed {ratio:.3f} of one server's")
    assert ratio <= 1.05


def strangers() -> None:
    """Another KV type or library in the fleet: it shares nothing, and both servers say so. Another model is usual."""
    with fleet(1) as servers, tempfile.TemporaryDirectory() as folder:
        first = Talk(0).turn(servers.urls[0])
        servers.settle()
        with replica(servers, "--kv-type", "q8_0") as other:
            stranger(servers, other, first)
        with replica(servers, model=str(model_path("qwen35"))) as other:
            stranger(servers, other, None)
        library = Path(folder, "libllama.so")
        library.write_bytes(load_library().path.read_bytes() + b"another build")
        with patch.dict("os.environ", LEFTOFF_LIBLLAMA=str(library)), replica(servers) as other:
            stranger(servers, other, first)


def stranger(servers: Fleet, other: Server, known: Told | None) -> None:
    """It computes all of a prompt that the others have stored. What they have of it is `known` for the same model."""
    told = Talk(0).turn(other.url)
    assert told.computed == told.prompt_tokens, "it was given bytes of another"
    if known is None:
        return
    assert told.prompt_tokens == known.prompt_tokens
    address = f"the server at {other.url} shares nothing with this one"
    assert until(lambda: address in servers.servers[0].log and "shares nothing with this one" in other.log)
    print(f"  {next(line for line in other.log.splitlines() if 'shares nothing' in line)}")


PROOFS: tuple[Callable[[], None], ...] = (
    *(moving, killed_server, killed_index, frozen_index, killed_store),
    *(partition, full_store, slow_store, clocks, strangers),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(proof.__name__ for proof in PROOFS))
    wanted = parser.parse_args().names
    for proof in PROOFS:
        if not wanted or proof.__name__ in wanted:
            began = time.monotonic()
            print(f"{proof.__name__}: {proof.__doc__}", flush=True)
            proof()
            print(f"  {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
