"""One run: conversations over a simulated fleet while things break, and what must hold in the meantime and afterwards.

- A request is answered within its bound, by the state of its own text (`server.py` looks at that) and of its tenant.
- The router drops no replica that beats.
- When all is mended, every object that a server took for stored is there and in the index, unless it was wiped since;
  a reply is known to the next server at once, and a turn that was stored is not read again; leases end.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import aiohttp
import msgspec

from lab.box import faults
from lab.box.bucket import Bucket
from lab.box.faults import Fault
from lab.box.http import Refused, Session, Web, through
from lab.box.redis import Client, Redis
from lab.box.server import Acknowledged, Answered, Server, text_of, words_of, written
from lab.box.world import Process, World
from leftoff.blobs import clock
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.meters import Meters
from leftoff.cluster.proxy import Proxy
from leftoff.cluster.router import Router

_WELL_S = 90.0  # after all is mended, by when everything must be as if nothing had happened
_ANSWER_S = 60.0
_TOLD_S = 0.15  # after the end of a reply: by then other servers know it
_STORED_S = 3.0  # after a turn: by then a server has noticed what the store has lost, and has stored it again
_CUT_S = 12.0  # how long a server that was cut off from the index may be missing at the router
_NOTICED_S = 12.0  # by then a server has seen that the fleet has another secret than itself
HEADER_WORDS = 90
_MAX_TURNS = 4
_USUAL_CALL_MS = 30.0


class Play:
    """A fleet and its clients. `found` and `trace` tell what came out."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        chance = self._chance = world.random
        self.redis = Redis(world, skew_s=chance.uniform(-600, 600))
        self.bucket = Bucket(world)
        self.router = Process(world, "router")
        self._web = Web(world)
        self._acknowledged = Acknowledged()
        self._num_servers = chance.randint(2, 3)
        self._num_started = 0
        self._known: dict[str, list[list[str]]] = {}  # the texts of each tenant
        self._seen_at_router: dict[str, float] = {}  # replicas, and when they were cut off from the index last
        self.faults = faults.draw(chance, self._num_servers)
        self._mended_at = max((fault.at_s + fault.for_s + 0.5 for fault in self.faults), default=0.0)
        self._is_over = False

    @property
    def found(self) -> list[str]:
        return self.world.findings

    def run(self) -> "Play":
        state, logger, told = random.getstate(), logging.getLogger("leftoff"), Told(self.world)
        random.seed(self._chance.random())  # the collector's pauses
        logger.addHandler(told)
        with patch.object(clock, "now", self._wall_clock), patch.object(logger, "propagate", False):
            self.router.start(self._play())
            self.world.run(lambda: self._is_over)
        logger.removeHandler(told)
        random.setstate(state)
        return self

    def _wall_clock(self) -> float:
        assert self.world.current is not None
        return self.world.now + self.world.current.skew_s

    # --- servers

    def server(self, number: int) -> Server:
        return self._web.servers[f"http://s{number}"]

    def start_server(self, number: int) -> None:
        before = self._web.servers.get(f"http://s{number}")
        if before is not None and before.process.is_alive and before.is_stopping:
            self.later(0.1, partial(self.start_server, number))
        elif before is None or not before.process.is_alive:
            if before is not None:  # one that was stopped has left some unanswered
                self._web.break_off(before)
            self._num_started += 1
            name = f"s{number}.{self._num_started}"
            self.world.note(f"{name} starts")
            self._web.servers[f"http://s{number}"] = Server(
                self.world, name, f"http://s{number}", self.redis, self.bucket, self._acknowledged
            )

    def kill(self, server: Server) -> None:
        self.world.note(f"{server.process.name} is killed")
        server.process.kill()
        self._web.break_off(server)

    # --- faults

    @property
    def is_breaking(self) -> bool:
        return self.world.now < self._mended_at

    @property
    def may_lack_something(self) -> bool:
        """Replies are kept by the index and by the server that has written them: both may have lost them. What was
        wiped is stored again piece by piece, as it is used."""
        has_lost_replies = self.redis.database.num_forgotten > 0 and self._num_started > self._num_servers
        return has_lost_replies or any(fault.name == "the bucket is wiped" for fault in self.faults)

    @property
    def _may_lose_secret(self) -> bool:
        return any(fault.name in ("the bucket is wiped", "the secret is lost") for fault in self.faults)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.world.at(self.world.now + seconds, self.router, call)

    def _break(self, fault: Fault) -> None:
        self.world.note(str(fault))
        faults.BREAKS[fault.name](self, fault)

    # --- the play, on the router's loop

    async def _play(self) -> None:
        fleet = Fleet(lambda: self.world.now)
        index = IndexFollower("redis://redis", fleet, connect_index=partial(Client, self.redis, self.router))
        session = cast(aiohttp.ClientSession, Session(self._web, self.router))
        self._proxy = Proxy(Router(fleet, index), Meters(fleet), session)
        for number in range(self._num_servers):
            self.start_server(number)
        index.start()
        for fault in self.faults:
            self.world.at(fault.at_s, self.router, partial(self._break, fault))
        watching = asyncio.create_task(self._watch_router(fleet))
        await asyncio.sleep(1.0)
        talks = [Talk(self, number) for number in range(self._chance.randint(1, 3))]
        await asyncio.gather(*(talk.go_on() for talk in talks))
        await asyncio.sleep(max(0.0, self._mended_at - self.world.now))
        await self._mend()
        if await self._is_well():
            for talk in talks:
                await talk.check_sharing()
            self._check_leases()
        watching.cancel()
        await index.close()
        self._is_over = True

    async def _mend(self) -> None:
        """Parts work, servers run, and one that says that it needs a restart gets it."""
        self.redis.mend()
        self.bucket.mend()
        await asyncio.sleep(_NOTICED_S if self._may_lose_secret else 2.0)
        for server in self._web.servers.values():
            says = f"{server.process.name} says: "
            if any(says in line and "a restart" in line for line in self.world.trace):
                self.kill(server)
        for number in range(self._num_servers):
            self.start_server(number)

    async def _is_well(self) -> bool:
        """Waits until nothing is amiss; what still is in the end is a finding."""
        deadline = self.world.now + _WELL_S
        while amiss := self._amiss():
            if self.world.now > deadline:
                self.world.find(f"{_WELL_S:.0f} s after all was mended {amiss}")
                return False
            await asyncio.sleep(0.5)
        return True

    def _amiss(self) -> str:
        for server in self._web.servers.values():
            if not server.is_ready:
                return f"{server.process.name} is not ready"
            link = server.member.link
            if any(breaker.is_failing for breaker in (link.index_breaker, link.reads, link.writes)):
                return f"{server.process.name} takes a part for broken"
            if (server.prober.call_ms or 0.0) > _USUAL_CALL_MS:
                return f"{server.process.name} takes the store for slow"
            if server.num_waiting_blobs:
                return f"{server.process.name} has not written {server.num_waiting_blobs} blobs"
            if server.process.name not in self._seen_at_router:
                return f"the router does not know {server.process.name}"
        wanted = [name for name in self._acknowledged.at if self.bucket.owes(name)]
        if gone := [name for name in wanted if name not in self.bucket.objects]:
            return f"{len(gone)} stored objects are not there, such as {gone[0]}"
        group = self._keys.group
        named = {f"{group}/{name.decode()}" for name in self.redis.database.zrange(self._keys.blobs, 0, -1)}
        if lost := {*wanted} - named:
            return f"the index lacks {len(lost)} stored objects, such as {min(lost)}"
        if gone := sorted(named - {*self.bucket.objects}):
            return f"the index names {len(gone)} objects that are not there, such as {gone[0]}"
        return ""

    @property
    def _keys(self) -> Any:  # noqa: ANN401
        return self.server(0).member.link.index.keys

    def _check_leases(self) -> None:
        for key in self.redis.database.all_keys():
            if b":lease:" in key and not self.redis.database.ttl_s(key) <= 30:
                self.world.find(f"the lease {key!r} does not end")

    async def _watch_router(self, fleet: Fleet) -> None:
        """No replica that beats is dropped."""
        world, seen = self.world, self._seen_at_router
        while True:
            if not (self.redis.is_well and self.bucket.is_well):
                world.unwell_at = world.now
            for server in self._web.servers.values():
                name = server.process.name
                is_cut = name in self.redis.cut or self.redis.lost or self.router.name in self.redis.cut
                if name in fleet.views:
                    seen.setdefault(name, world.now)
                if is_cut and name in seen:
                    seen[name] = world.now + _CUT_S
                is_there = server.process.is_alive and server.is_ready and not server.is_stopping
                if is_there and seen.get(name, world.now) < world.now and name not in fleet.views:
                    world.find(f"the router has dropped {name}, which beats")
                    del seen[name]
            await asyncio.sleep(0.25)

    # --- requests

    async def ask(self, key: str, messages: Sequence[dict[str, str]], url: str | None = None) -> Answered:
        """Asks through the router, or the server at `url`, again and again until there is an answer."""
        world, began = self.world, self.world.now
        body = msgspec.json.encode({"messages": messages, "model": "chain"})
        self._known.setdefault(key, []).append(words(messages))
        while True:
            with suppress(Refused, aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    answered = await self._sent(body, {"authorization": key}, url)
                    self._check(key, messages, answered)
                    return answered
            if world.now - began > _ANSWER_S and not self._is_excused(url):
                world.find(f"no answer after {world.now - began:.0f} s")
                self._is_over = True
            await asyncio.sleep(0.5)

    async def _sent(self, body: bytes, headers: Mapping[str, str], url: str | None) -> Answered:
        if url is None:
            return await through(self._proxy, body, headers)
        return await self._web.ask(self.router, url, body, headers)

    def _is_excused(self, url: str | None) -> bool:
        return url is not None and not self._web.servers[url].is_ready

    def _check(self, key: str, messages: Sequence[dict[str, str]], answered: Answered) -> None:
        text = words_of(answered.tokens)
        if text != words([*messages, {"content": answered.text}]):
            self.world.find("an answer to another text")
        prompt = answered.tokens[: answered.prompt_tokens]
        if answered.text != text_of(written(cast(Any, prompt))):
            self.world.find("another answer than the prompt's")
        reused = words_of(answered.tokens[: answered.reused])
        if not any(known[: len(reused)] == reused for known in self._known[key]):
            self.world.find(f"{key} was given {len(reused)} words of another tenant")
        self._known[key].append(text)


class Told(logging.Handler):
    """What the code logs goes into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        name = self._world.current.name if self._world.current is not None else ""
        self._world.note(f"{name} says: {record.getMessage()}")
        if record.exc_info:
            self._world.find(f"{name}: {record.getMessage()}: {record.exc_info[1]!r}")


class Talk:
    """A conversation: through the router, or each turn at the next server."""

    def __init__(self, play: Play, number: int) -> None:
        self._play = play
        self._chance = play.world.random
        self._key = f"tenant {number // 2}"
        self._urls: list[str | None] = [None]
        if self._chance.random() < 0.5:
            self._urls = [f"http://s{each}" for each in range(play._num_servers)]
        self._num_turns = 0
        self._messages = [{"role": "system", "content": text_of(range(1000, 1000 + HEADER_WORDS))}]

    async def go_on(self) -> None:
        while self._play.world.now < faults.LAST_S and self._num_turns < _MAX_TURNS:
            await asyncio.sleep(self._chance.choice((0.0, 0.5, 5.0)) * self._chance.random())
            await self._turn(self._urls[self._num_turns % len(self._urls)])

    async def _turn(self, url: str | None) -> Answered:
        self._num_turns += 1
        self._messages.append({"role": "user", "content": text_of(self._chance.sample(range(1000), 15))})
        answered = await self._play.ask(self._key, self._messages, url)
        self._messages.append({"role": "assistant", "content": answered.text})
        return answered

    async def check_sharing(self) -> None:
        """All is well: what a server has written and stored, the next one knows."""
        play = self._play
        urls = [*play._web.servers]
        first = await self._turn(urls[0])
        await asyncio.sleep(_TOLD_S)
        second = await self._turn(urls[1])
        reply = slice(first.prompt_tokens, len(first.tokens))
        if second.tokens[reply] != first.tokens[reply]:
            play.world.find(f"{_TOLD_S} s after a reply the next server does not know how it was written")
        await asyncio.sleep(_STORED_S)
        if await play._is_well():
            third = await self._turn(urls[0] if len(urls) == 2 else urls[2])
            if third.reused < len(second.tokens) and not play.may_lack_something:
                play.world.find(f"of {len(second.tokens)} tokens that were stored the next server found {third.reused}")


def words(messages: Sequence[Mapping[str, str]]) -> list[str]:
    return [word for each in messages for word in each["content"].split()]


def play(seed: int) -> Play:
    return Play(seed).run()
