"""The index of the shared store in Redis or Valkey: which blobs there are, who holds which lease. See `keys.py`.

Every change is one script, and time is the server's own: clocks of machines may differ. What the index names exists, or
was removed a moment ago: a blob is put before it is added here, and removed here before it is deleted.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath
from leftoff.cache.blob_store import Worth
from leftoff.setting import SettingError
from leftoff.store.keys import PROBE, Keys, PrefixSearch, bit_of, blob_prefix
from leftoff.store.objects import ObjectName

INDEX_PROBLEMS = (RedisError, OSError, TimeoutError)
_CALL_S = 1.0
# How much later than others a blob may go, in seconds, for what it is worth.
_BONUS_S = {Worth.MIDDLE: 0, Worth.END: 3600, Worth.SHARED: 86_400}
DAY_S = 86_400
_AT_ONCE = 256
_PROBE_MS = 60_000

# KEYS: at, run, blobs, bytes, namespaces; ARGV: prefix, bytes, bit, bonus, object, expiry ms, namespace
# Returns whether the blob and whether the namespace were known before.
_ADD = """
local now = tonumber(redis.call('TIME')[1])
local is_known = string.find(' ' .. (redis.call('GET', KEYS[1]) or ''), ' ' .. ARGV[1], 1, true)
if not is_known then redis.call('APPEND', KEYS[1], ARGV[1] .. ARGV[2] .. ' ') end
redis.call('SETBIT', KEYS[2], ARGV[3], 1)
if redis.call('ZADD', KEYS[3], 'GT', now + ARGV[4], ARGV[5]) == 1 then redis.call('INCRBY', KEYS[4], ARGV[2]) end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
local is_new_namespace = ARGV[7] ~= '' and redis.call('ZADD', KEYS[5], now, ARGV[7]) == 1
return {is_known and 1 or 0, is_new_namespace and 0 or 1}
"""
# KEYS: at, run, blobs; ARGV: bonus, object, expiry ms
_TOUCH = """
if not redis.call('ZSCORE', KEYS[3], ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[3], 'XX', 'GT', tonumber(redis.call('TIME')[1]) + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""
# KEYS: at, blobs, bytes; ARGV: prefix, object. A Redis that is full may have evicted what lies under `at`, which has an
# expiry: then the size of the blob is taken to be that of the others.
_REMOVE = """
local num_removed = redis.call('ZREM', KEYS[2], ARGV[2])
local kept, nbytes = '', 0
for blob in string.gmatch(redis.call('GET', KEYS[1]) or '', '%S+') do
  if string.sub(blob, 1, #ARGV[1]) == ARGV[1] then nbytes = tonumber(string.sub(blob, #ARGV[1] + 1))
  else kept = kept .. blob .. ' ' end
end
if nbytes == 0 then
  local total = math.max(0, tonumber(redis.call('GET', KEYS[3]) or 0))
  nbytes = num_removed * math.floor(total / (redis.call('ZCARD', KEYS[2]) + 1))
elseif kept == '' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], kept, 'KEEPTTL') end
redis.call('DECRBY', KEYS[3], nbytes)
return nbytes
"""
# KEYS: namespaces; ARGV: namespace, seconds
_FORGET = """
local last_used = redis.call('ZSCORE', KEYS[1], ARGV[1])
if last_used and redis.call('TIME')[1] - last_used < tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
"""
_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"


@dataclass(frozen=True)
class IndexUsage:
    """How much of the store the index knows."""

    num_blobs: int
    nbytes: int


class Known(NamedTuple):
    """What the index knows of a blob that is to be stored: the blob itself, and its namespace."""

    blob: bool
    namespace: bool


class Index:
    """The index of one fingerprint. Every call belongs to the loop of the link, and may raise `INDEX_PROBLEMS`."""

    def __init__(self, redis: "Redis", fingerprint: str, *, days: float = 30) -> None:
        """Blobs that were not used for `days` may be removed; their keys expire by themselves after twice that time."""
        self.keys = Keys(fingerprint)
        self.token = secrets.token_bytes(8)  # of the leases that this process takes
        self.max_age_s = days * DAY_S
        self._expiry_ms = int(2000 * max(1, self.max_age_s))
        self.redis = redis
        script = self.redis.register_script
        self._add, self._touch, self._remove = script(_ADD), script(_TOUCH), script(_REMOVE)
        self._forget, self._renew = script(_FORGET), script(_RENEW)

    async def close(self) -> None:
        await self.redis.aclose()

    async def search(self, path: HashedPath, start: int) -> list[Blob]:
        """The blobs on a path that end after `start`: two round trips."""
        search = PrefixSearch(self.keys, path, start)
        at_keys = search.at_keys(cast(Any, await self.redis.mget(search.run_keys)))
        return search.blobs(cast(Any, await self.redis.mget(at_keys))) if at_keys else []

    async def find(self, blob: ObjectName, namespace: str) -> Known:
        """What is known of a blob. The namespace without a name is always known."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.get(self.keys.at(blob.tag))
            pipe.zscore(self.keys.namespaces, namespace)
            found, last_used = await pipe.execute()
        is_there = b" " + blob_prefix(blob.kind, blob.start) in b" " + (found or b"")
        return Known(is_there, not namespace or last_used is not None)

    async def add(self, blob: ObjectName, nbytes: int, worth: Worth, namespace: str) -> Known:
        """Adds a blob that was stored, or notes that it was used; returns what was known of it before."""
        return Known(*map(bool, await self._add(*self._added(blob, nbytes, worth, namespace))))

    async def add_all(self, blobs: Iterable[tuple[ObjectName, int]]) -> int:
        """Adds blobs that were found in the store; returns how many were not known."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for blob, nbytes in blobs:
                await self._add(*self._added(blob, nbytes, Worth.MIDDLE, ""), client=pipe)
            return sum(not is_known for is_known, _ in await pipe.execute())

    def _added(self, blob: ObjectName, nbytes: int, worth: Worth, namespace: str) -> tuple[list[Any], list[Any]]:
        """Keys and arguments of the script that adds a blob."""
        keys = self.keys
        of_blob = [keys.at(blob.tag), keys.run(blob.run), keys.blobs, keys.bytes, keys.namespaces]
        args: list[Any] = [blob_prefix(blob.kind, blob.start), nbytes, bit_of(blob.end), _BONUS_S[worth], str(blob)]
        return of_blob, [*args, self._expiry_ms, namespace]

    async def touch(self, blobs: Sequence[tuple[ObjectName, Worth]]) -> list[bool]:
        """Notes that blobs were used; for each, whether the index still knows it."""
        if not blobs:
            return []
        async with self.redis.pipeline(transaction=False) as pipe:
            for blob, worth in blobs:
                keys = [self.keys.at(blob.tag), self.keys.run(blob.run), self.keys.blobs]
                await self._touch(keys, [_BONUS_S[worth], str(blob), self._expiry_ms], client=pipe)
            return [bool(is_known) for is_known in await pipe.execute()]

    async def remove(self, blobs: Sequence[ObjectName]) -> int:
        """Removes blobs; returns the bytes that the index knew of them."""
        if not blobs:
            return 0
        async with self.redis.pipeline(transaction=False) as pipe:
            for blob in blobs:
                keys = [self.keys.at(blob.tag), self.keys.blobs, self.keys.bytes]
                await self._remove(keys, [blob_prefix(blob.kind, blob.start), str(blob)], client=pipe)
            return sum(await pipe.execute())

    async def usage(self) -> IndexUsage:
        nbytes = await self.redis.get(self.keys.bytes)
        return IndexUsage(await self.redis.zcard(self.keys.blobs), max(0, int(nbytes or 0)))

    async def first_to_go(self, most: int, unused_s: float | None = None) -> list[ObjectName]:
        """The blobs worth least, or those of them that were not used for so long."""
        upto = (await self.now()) - unused_s if unused_s is not None else float("inf")
        names: Any = await self.redis.zrange(self.keys.blobs, "-inf", upto, byscore=True, offset=0, num=most)
        return [blob for blob in map(ObjectName.parse, (name.decode() for name in names)) if blob is not None]

    async def names(self, match: str = "*") -> set[str]:
        """The objects of all blobs that the index knows, or of those whose names match."""
        found = self.redis.zscan_iter(self.keys.blobs, match, count=_AT_ONCE)
        return {name.decode() async for name, _ in found}

    async def now(self) -> float:
        """The time of the index, in seconds."""
        seconds, micros = await self.redis.time()
        return float(seconds) + float(micros) / 1e6

    async def process(self) -> str:
        """The number of the index's own process: another one may have forgotten something."""
        return str((await self.redis.info("server")).get("run_id", ""))

    async def namespaces(self) -> list[str]:
        names: Any = await self.redis.zrange(self.keys.namespaces, 0, -1)
        return [name.decode("utf-8", "replace") for name in names]

    async def forget_namespace(self, namespace: str, unused_s: float) -> bool:
        """False if something of it was stored later than so long ago: then it stays known."""
        return bool(await self._forget([self.keys.namespaces], [namespace, unused_s]))

    # --- leases: never a condition of correctness

    async def take_lease(self, key: bytes, ttl_ms: float) -> bool:
        """True if this process has the lease now, or had it."""
        if await self.redis.set(key, self.token, nx=True, px=max(1, int(ttl_ms))):
            return True
        return bool(await self.redis.get(key) == self.token)

    async def renew_lease(self, key: bytes, ttl_ms: float) -> bool:
        return bool(await self._renew([key], [self.token, int(ttl_ms)]))


async def check_writes(redis: Any) -> None:  # noqa: ANN401
    """Raises one of `INDEX_PROBLEMS` if nothing can be written: an index that is full can be read all the same."""
    await redis.set(PROBE, b"", px=_PROBE_MS)


def connect(url: str, **options: Any) -> "Redis":  # noqa: ANN401
    """A client that gives up quickly, but for a connection that was closed meanwhile, which it opens again."""
    retry = Retry(NoBackoff(), 1, (exceptions.ConnectionError,))
    usual: dict[str, Any] = {"socket_timeout": _CALL_S, "socket_connect_timeout": _CALL_S, "retry": retry}
    try:
        return Redis.from_url(url.replace("valkey", "redis", 1) if url.startswith("valkey") else url, **usual | options)
    except ValueError as error:
        raise SettingError(f"--index: {error}: give a URL such as redis://host:6379/0") from error
