"""A Redis on paper: the commands that leftoff uses, as redis-py's client answers them. Scripts are told in Python."""

import asyncio
import fnmatch
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from redis import exceptions

from lab.box.network import Part
from lab.box.world import Process, World
from leftoff.store import index

_TIMEOUT_S = 1.0


def _bytes(value: Any) -> bytes:  # noqa: ANN401
    return value if isinstance(value, bytes) else str(value).encode()


class Database:
    """The data of one server. Every method is a command. `clock` is the server's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[bytes, Any] = {}
        self._expiry: dict[bytes, float] = {}
        self.run_id = self.num_forgotten = 0

    def forget(self) -> None:
        self.num_forgotten += 1
        self._values.clear()
        self._expiry.clear()

    def _at(self, key: Any, empty: Any = None) -> Any:  # noqa: ANN401
        key = _bytes(key)
        if self._expiry.get(key, float("inf")) <= self._clock():
            self.delete(key)
        return self._values.get(key) if empty is None else self._values.setdefault(key, empty)

    def _drop_empty(self, key: Any) -> None:  # noqa: ANN401
        if not self._values.get(_bytes(key)):
            self.delete(key)

    def all_keys(self) -> list[bytes]:
        return [key for key in sorted(self._values) if self._at(key) is not None]

    def ttl_s(self, key: bytes) -> float:
        return self._expiry.get(key, float("inf")) - self._clock()

    # --- strings

    def get(self, key: Any) -> bytes | None:  # noqa: ANN401
        return bytes(found) if (found := self._at(key)) is not None else None

    def mget(self, keys: Iterable[Any]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any, nx: bool = False, px: int | None = None, ex: int | None = None) -> bool | None:  # noqa: ANN401
        if nx and self._at(key) is not None:
            return None
        self.delete(key)
        self._values[_bytes(key)] = _bytes(value)
        if px or ex:
            self.pexpire(key, px or 1000 * (ex or 0))
        return True

    def delete(self, *keys: Any) -> int:  # noqa: ANN401
        there = [key for key in map(_bytes, keys) if self._values.pop(key, None) is not None]
        for key in keys:
            self._expiry.pop(_bytes(key), None)
        return len(there)

    def exists(self, key: Any) -> int:  # noqa: ANN401
        return int(self._at(key) is not None)

    def expire(self, key: Any, seconds: float) -> bool:  # noqa: ANN401
        return self.pexpire(key, 1000 * seconds)

    def pexpire(self, key: Any, ms: Any) -> bool:  # noqa: ANN401
        if self._at(key) is None:
            return False
        self._expiry[_bytes(key)] = self._clock() + float(ms) / 1000
        return True

    # --- sets, hashes

    def sadd(self, key: Any, *members: Any) -> int:  # noqa: ANN401
        there = self._at(key, {})
        before = len(there)
        there.update(dict.fromkeys(map(_bytes, members)))
        return len(there) - before

    def srem(self, key: Any, *members: Any) -> int:  # noqa: ANN401
        removed = sum((self._at(key) or {}).pop(_bytes(member), 0) is None for member in members)
        self._drop_empty(key)
        return removed

    def smembers(self, key: Any) -> list[bytes]:  # noqa: ANN401
        return sorted(self._at(key) or ())

    def hget(self, key: Any, name: Any) -> bytes | None:  # noqa: ANN401
        found: bytes | None = (self._at(key) or {}).get(_bytes(name))
        return found

    def hset(self, key: Any, mapping: Mapping[Any, Any]) -> int:  # noqa: ANN401
        there = self._at(key, {})
        before = len(there)
        there.update({_bytes(name): _bytes(value) for name, value in mapping.items()})
        return len(there) - before

    def hgetall(self, key: Any) -> dict[bytes, bytes]:  # noqa: ANN401
        return dict(self._at(key) or {})

    def hdel(self, key: Any, *names: Any) -> int:  # noqa: ANN401
        removed = sum((self._at(key) or {}).pop(_bytes(name), None) is not None for name in names)
        self._drop_empty(key)
        return removed

    # --- sorted sets

    def zadd(self, key: Any, mapping: Mapping[Any, float]) -> int:  # noqa: ANN401
        there = self._at(key, {})
        before = len(there)
        there.update({_bytes(member): float(score) for member, score in mapping.items()})
        return len(there) - before

    def zcard(self, key: Any) -> int:  # noqa: ANN401
        return len(self._at(key) or ())

    def zscore(self, key: Any, member: Any) -> float | None:  # noqa: ANN401
        found: float | None = (self._at(key) or {}).get(_bytes(member))
        return found

    def zrem(self, key: Any, *members: Any) -> int:  # noqa: ANN401
        return self.hdel(key, *members)

    def zrange(
        self,
        key: Any,  # noqa: ANN401
        start: Any,  # noqa: ANN401
        end: Any,  # noqa: ANN401
        byscore: bool = False,
        offset: int = 0,
        num: int = -1,
    ) -> list[bytes]:
        scored = sorted((score, member) for member, score in (self._at(key) or {}).items())
        if not byscore:
            return [member for _, member in scored[start : None if end == -1 else end + 1]]
        within = [member for score, member in scored if float(start) <= score <= float(end)]
        return within[offset : offset + num]

    def zremrangebyscore(self, key: Any, start: Any, end: Any) -> int:  # noqa: ANN401
        return self.zrem(key, *self.zrange(key, start, end, byscore=True, num=1 << 30)) if self._at(key) else 0

    # --- streams: an entry is its number and its fields

    def xadd(self, key: Any, fields: Mapping[Any, Any], maxlen: int = 1 << 30, approximate: bool = True) -> bytes:  # noqa: ANN401, ARG002
        entries = self._at(key, {})
        number = max(int(max(entries, default=b"0-0").partition(b"-")[0]) + 1, int(1000 * self._clock()))
        entry_id = b"%016d-0" % number
        entries[entry_id] = {_bytes(name): _bytes(value) for name, value in fields.items()}
        while len(entries) > maxlen:
            del entries[min(entries)]
        return entry_id

    def xrevrange(self, key: Any, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:  # noqa: ANN401
        entries = self._at(key) or {}
        return [(entry_id, entries[entry_id]) for entry_id in islice(sorted(entries, reverse=True), count)]

    def xread(self, streams: Mapping[bytes, bytes], count: int) -> list[list[Any]]:
        found = []
        for key, after in streams.items():
            entries = self._at(key) or {}
            new = [[entry_id, entries[entry_id]] for entry_id in sorted(entries) if entry_id > _id(after)][:count]
            found += [[key, new]] if new else []
        return found

    # --- the server

    def time(self) -> tuple[int, int]:
        return int(self._clock()), int(self._clock() % 1 * 1e6)

    def info(self, section: str) -> dict[str, str]:  # noqa: ARG002
        return {"run_id": str(self.run_id)}

    def ping(self) -> bool:
        return True

    # --- scripts

    def script(self, text: str, keys: Sequence[bytes], args: Sequence[Any]) -> Any:  # noqa: ANN401
        return _SCRIPTS[text](self, keys, [_bytes(arg) for arg in args])

    def add(self, keys: Sequence[bytes], args: Sequence[bytes]) -> list[int]:
        at, run, blobs, nbytes, namespaces = keys
        prefix, size, bit, bonus, name, expiry_ms, namespace = args
        before = self.get(at) or b""
        is_known = b" " + prefix in b" " + before
        if not is_known:
            self._values[at] = before + prefix + size + b" "
        if name not in (self._at(blobs) or ()):
            self._values[nbytes] = b"%d" % (int(self.get(nbytes) or 0) + int(size))
        bits = bytearray((self.get(run) or b"").ljust(int(bit) // 8 + 1, b"\0"))
        bits[int(bit) // 8] |= 0x80 >> int(bit) % 8
        self._values[run] = bytes(bits)
        self._raise_score(blobs, name, self.time()[0] + int(bonus))
        self.pexpire(at, expiry_ms)
        self.pexpire(run, expiry_ms)
        is_new_namespace = bool(namespace) and self.zadd(namespaces, {namespace: self.time()[0]}) == 1
        return [int(is_known), int(not is_new_namespace)]

    def touch(self, keys: Sequence[bytes], args: Sequence[bytes]) -> int:
        at, run, blobs = keys
        bonus, name, expiry_ms = args
        if name not in (self._at(blobs) or ()):
            return 0
        self._raise_score(blobs, name, self.time()[0] + int(bonus))
        self.pexpire(at, expiry_ms)
        self.pexpire(run, expiry_ms)
        return 1

    def remove(self, keys: Sequence[bytes], args: Sequence[bytes]) -> int:
        at, blobs, total = keys
        prefix, name = args
        num_removed = self.zrem(blobs, name)
        there = (self.get(at) or b"").split()
        nbytes = int(self.get(total) or 0)
        if size := sum(int(blob[len(prefix) :]) for blob in there if blob.startswith(prefix)):
            self._values[at] = b"".join(blob + b" " for blob in there if not blob.startswith(prefix))
            self._drop_empty(at)
        else:
            size = num_removed * (max(0, nbytes) // (self.zcard(blobs) + 1))
        self._values[total] = b"%d" % (nbytes - size)
        return size

    def forget_namespace(self, keys: Sequence[bytes], args: Sequence[bytes]) -> int:
        last_used = self.zscore(keys[0], args[0])
        if last_used is not None and self.time()[0] - last_used < float(args[1]):
            return 0
        self.zrem(keys[0], args[0])
        return 1

    def renew(self, keys: Sequence[bytes], args: Sequence[bytes]) -> int:
        return int(self.get(keys[0]) == args[0] and self.pexpire(keys[0], args[1]))

    def _raise_score(self, key: bytes, member: bytes, score: float) -> None:
        self.zadd(key, {member: max(score, (self._at(key) or {}).get(member, 0.0))})


_SCRIPTS = {
    index._ADD: Database.add,
    index._TOUCH: Database.touch,
    index._REMOVE: Database.remove,
    index._FORGET: Database.forget_namespace,
    index._RENEW: Database.renew,
}


def _id(text: bytes) -> bytes:
    number, _, rest = text.partition(b"-")
    return b"%016d-%s" % (int(number), rest)


class Redis(Part):
    """The process. Killed, it forgets all or keeps all."""

    def __init__(self, world: World, name: str = "redis", skew_s: float = 0.0) -> None:
        super().__init__(world, name)
        self.database = Database(lambda: 1e9 + skew_s + world.now)

    def restart(self, *, forgets: bool) -> None:
        self.database.run_id += 1
        if forgets:
            self.database.forget()


class Client:
    """What redis-py's asyncio client is to the code: a call of any name is that command."""

    def __init__(self, redis: Redis, process: Process, url: str = "", **options: Any) -> None:  # noqa: ANN401, ARG002
        self._redis = redis
        self._process = process
        self._timeout_s = options.get("socket_timeout", _TIMEOUT_S)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self.run(name, [(name, args, options)], is_one=True)

    async def run(self, what: str, commands: Sequence[tuple[str, Any, Any]], *, is_one: bool = False) -> Any:  # noqa: ANN401
        work = partial(_done, self._redis.database, commands)
        try:
            results = await self._redis.call(self._process, what, work, self._timeout_s)
        except TimeoutError as error:
            raise exceptions.TimeoutError("Timeout reading from redis") from error
        except ConnectionRefusedError as error:
            raise exceptions.ConnectionError(str(error)) from error
        return results[0] if is_one else results

    async def xread(self, streams: Mapping[bytes, bytes], count: int, block: int) -> Any:  # noqa: ANN401
        read: tuple[str, Any, Any] = ("xread", (streams, count), {})
        if not (found := await self.run("xread", [read], is_one=True)):
            await asyncio.sleep(block / 1000)
            found = await self.run("xread", [read], is_one=True)
        return found

    def register_script(self, text: str) -> Callable[..., Any]:
        async def run(keys: Sequence[bytes], args: Sequence[Any], client: "Pipeline | None" = None) -> Any:  # noqa: ANN401
            return await (client or self).script(text, keys, args)

        return run

    def pipeline(self, transaction: bool = True) -> "Pipeline":  # noqa: ARG002
        return Pipeline(self)

    async def zscan_iter(self, key: bytes, match: str = "*", count: int = 0) -> AsyncIterator[tuple[bytes, float]]:  # noqa: ARG002
        for member in await self.zrange(key, 0, -1):
            if fnmatch.fnmatchcase(member.decode(), match):
                yield member, 0.0

    async def sscan_iter(self, key: bytes, count: int = 0) -> AsyncIterator[bytes]:  # noqa: ARG002
        for member in sorted(await self.smembers(key)):
            yield member

    async def aclose(self) -> None: ...


class Pipeline:
    """Commands that are sent together."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._commands: list[tuple[str, Any, Any]] = []

    async def __aenter__(self) -> "Pipeline":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def queue(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self._commands.append((name, args, options))
            return _nothing()

        return queue

    async def execute(self) -> Any:  # noqa: ANN401
        commands, self._commands = self._commands, []
        return await self._client.run("+".join(name for name, _, _ in commands), commands) if commands else []


class _nothing:  # noqa: N801
    """What a queued command returns: it may be awaited, or not."""

    def __await__(self) -> Any:  # noqa: ANN401
        return iter(())


def _done(database: Database, commands: Sequence[tuple[str, Any, Any]]) -> list[Any]:
    return [getattr(database, name)(*args, **options) for name, args, options in commands]
