"""A server of the simulated fleet: our own membership, store, replies and cache, over an engine that is a hash chain.

Text is words that are numbers. A word has two tokens, of which the tokenizer makes the first; the engine writes either.
So a reply that is not remembered as it was written is read again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from blake3 import blake3

from lab.box.bucket import Bucket, BucketClient
from lab.box.memory import BoxMemory
from lab.box.redis import Client, Redis
from lab.box.world import Process, SimCondition, SimFuture, World, sleep
from lab.simulate.leftoff_scheme import GivenCosts
from leftoff.cache.cache import Cache
from leftoff.cache.fetch import SHARED_PATIENCE_S, Watch
from leftoff.cluster.member import FleetMember
from leftoff.host.fleet import ModelState, Place
from leftoff.scheduler.batcher import Limits
from leftoff.scheduler.gate import Gate
from leftoff.scheduler.scheduler import Scheduler
from leftoff.server.reply.points import encode_points, points_of
from leftoff.server.tenant import Tenant
from leftoff.store.link import Link
from leftoff.store.objects import ObjectName
from leftoff.store.prober import Prober
from leftoff.types import MessageSpan, Prompt, Tokens
from tests.cache.chain import chain

WORDS = 100_000
_ROLES = {"system": 2 * WORDS, "user": 2 * WORDS + 1, "assistant": 2 * WORDS + 2}
READ_TOKENS_PER_MS = 0.05
_STEP_S = 0.01
_CHUNK = 64
_PAGE_TOKENS = 64
_PATIENCE_S = 8.0  # a search takes at most 1.5 s, and a store that delivers nothing is given up after 5 s
_CALM_PATIENCE_S = 3.0  # while all parts have been well for as long as that
_CLOSE_S = 3.0


@dataclass(eq=False)
class Job:
    """A request on its way."""

    key: str  # of its tenant
    messages: Sequence[dict[str, str]]
    answer: "Future[Answered]"


@dataclass(frozen=True)
class Answered:
    text: str
    prompt_tokens: int
    reused: int
    tokens: tuple[int, ...]  # of the prompt and the reply
    points: str


@dataclass
class Acknowledged:
    """The objects that servers took for stored, and when."""

    at: dict[str, float] = field(default_factory=dict)


class Server:
    """One process from its start to its end. All but the HTTP side runs in its engine's thread."""

    def __init__(
        self, world: World, name: str, url: str, redis: Redis, bucket: Bucket, acknowledged: Acknowledged
    ) -> None:
        self.world = world
        self.url = url
        self.process = Process(world, name, skew_s=world.random.uniform(-600, 600))
        self._acknowledged = acknowledged
        self._calls: list[Callable[[], None]] = []
        self._jobs: list[Job] = []
        self._changed = SimCondition(self.process)
        self.is_ready = self.is_stopping = False
        self._own_secret = world.random.randbytes(32)
        self._open_link = partial(
            Link,
            threads=self.process.threads,
            open_store=lambda _: BucketClient(bucket, self.process),
            connect_index=cast(Any, partial(Client, redis, self.process)),
        )
        self.process.threads.start(self._run, "engine")

    # --- called from outside

    def ask(self, job: Job) -> None:
        self._jobs.append(job)
        self._changed.notify_all()

    def stop(self) -> None:
        self.is_stopping = True
        self._changed.notify_all()

    @property
    def num_waiting_blobs(self) -> int:
        return sum(tier.blobs.num_waiting for tier in self.cache.tiers.lower) if self.is_ready else 0

    @property
    def prober(self) -> Prober:
        return self.member._prober

    # --- the engine's thread

    def _run(self) -> None:
        self.memory = BoxMemory(3)
        self.member = FleetMember(
            "s3://bucket", "redis://redis", budget_bytes=1 << 40, days=30, open_link=self._open_link
        )
        self.member.join(self.memory, "a chain")
        settings = self.member.open_store(self.memory.arena, queue_bytes=1 << 24, view_bytes=1 << 30)
        assert settings is not None
        self.secret = self.member.secret(self._own_secret)
        self.replies = self.member.replies(None)
        self._watch_writes(cast(Any, settings.blobs).medium)
        self.cache = Cache(
            self.memory,
            num_slots=1,
            budget_bytes=1 << 30,
            tiers=[settings],
            costs=GivenCosts(prefill_tokens_per_ms=READ_TOKENS_PER_MS),
            clock=self.process.threads.clock,
            page_tokens=_PAGE_TOKENS,
        )
        for tier in self.cache.tiers.lower:
            tier.watch = Watch(SHARED_PATIENCE_S, self.process.threads.clock, is_bounded=True)
        scheduler = SimpleNamespace(cache=self.cache, runs=[], waiting=[], limits=Limits(), gate=Gate())
        place = Place(self.process.name, self.url, lambda: [ModelState("chain")])
        self.member.announce(place, "chain", self.secret, self._call, cast(Scheduler, scheduler))
        self.is_ready = True
        while not self.is_stopping:
            self._work()
        self.member.drain()
        self.cache.close(_CLOSE_S)
        self.member.close()
        self.process.kill()

    def _work(self) -> None:
        if not self._jobs:
            self.cache.save_idle()
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._calls or self.is_stopping, 1.0)
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        if self._jobs:
            self._serve(self._jobs.pop(0))

    def _call(self, work: Callable[[], Any]) -> "Future[Any]":
        answer: Future[Any] = SimFuture(self.process)
        self._calls.append(lambda: answer.set_result(work()))
        self._changed.notify_all()
        return answer

    def _watch_writes(self, medium: Any) -> None:  # noqa: ANN401
        write = medium.write

        def noted(writes: Sequence[Any]) -> int:
            nbytes: int = write(writes)
            names = (f"{medium.link.group}/{ObjectName.of(each.blob)}" for each in writes)
            self._acknowledged.at |= dict.fromkeys(names, self.world.now)
            return nbytes

        medium.write = noted

    def _serve(self, job: Job) -> None:
        namespace = Tenant.of(job.key, self.secret).namespace(None)
        prompt = self._prompt(job.messages, namespace)
        preparation = self.cache.prepare(prompt, namespace, self._changed.notify_all)
        began = self.world.now
        while preparation.is_waiting:
            with self._changed:
                self._changed.wait_for(lambda: not preparation.is_waiting, 0.25)
            preparation.proceed()
        stood_s = self.world.now - began
        if stood_s > (_CALM_PATIENCE_S if self.world.unwell_at < began - _PATIENCE_S else _PATIENCE_S):
            self.world.find(f"{self.process.name}: a request stood {stood_s:.1f} s before it was begun")
        turn = self.cache.begin(prompt, namespace, preparation.fetch)
        assert turn is not None
        try:
            self.memory.assert_holds(turn.seq, prompt.tokens[: turn.report.reused])
        except AssertionError as error:
            self.world.find(f"{self.process.name}: another text was restored: {error}")
        while turn.is_reading:
            end = min(turn.next_chunk_end, turn.position + _CHUNK)
            self._decode(turn, prompt.tokens[turn.position : end], (end - turn.position) / READ_TOKENS_PER_MS / 1000)
        reply = written(prompt.tokens)
        self._decode(turn, reply, _STEP_S * reply.size)
        self.cache.finish(turn)
        text = text_of(reply)
        self.replies.put(
            _reply_key(namespace, [*job.messages, {"role": "assistant", "content": text}]), namespace, reply.tobytes()
        )
        self.world.note(f"{self.process.name} answers, {turn.report.reused} of {prompt.length} reused")
        whole = (*prompt.tokens.tolist(), *reply.tolist())
        points = encode_points(points_of(prompt, namespace))
        job.answer.set_result(Answered(text, prompt.length, turn.report.reused, whole, points))

    def _decode(self, turn: Any, tokens: Tokens, seconds: float) -> None:  # noqa: ANN401
        sleep(self.process, seconds)
        self.memory.decode(turn.seq, tokens)
        self.cache.advance(turn, tokens, np.zeros(1, np.float32) if turn.is_reading else None)

    def _prompt(self, messages: Sequence[dict[str, str]], namespace: str) -> Prompt:
        """Replies in the tokens that were written, as far as they are remembered."""
        keys = [
            _reply_key(namespace, messages[: index + 1]) if each["role"] == "assistant" else b""
            for index, each in enumerate(messages)
        ]
        known = self.replies.get([key for key in keys if key])
        tokens: list[int] = []
        spans: list[MessageSpan] = []
        for key, message in zip(keys, messages, strict=True):
            start = len(tokens)
            tokens.append(_ROLES[message["role"]])
            written_tokens = known.get(key)
            plain = [int(word) for word in message["content"].split()]
            tokens += np.frombuffer(written_tokens, np.int32).tolist() if written_tokens is not None else plain
            spans.append(MessageSpan(message["role"], start, len(tokens)))
        tokens.append(_ROLES["assistant"])
        return Prompt(np.array(tokens, np.int32), tuple(spans))


def written(tokens: Tokens) -> Tokens:
    """What the engine writes after these tokens: known from them alone."""
    state = np.random.default_rng(abs(chain(tokens)[-1]))
    return np.array(state.integers(0, 2 * WORDS, state.integers(3, 12)), np.int32)


def text_of(tokens: Sequence[int] | Tokens) -> str:
    return " ".join(str(int(token) % WORDS) for token in tokens)


def words_of(tokens: Sequence[int]) -> list[str]:
    """The text of a whole prompt, without the tokens of roles."""
    return [str(token % WORDS) for token in tokens if token < 2 * WORDS]


def _reply_key(namespace: str, messages: Sequence[dict[str, str]]) -> bytes:
    return blake3(repr((namespace, [each["content"] for each in messages])).encode()).digest()
