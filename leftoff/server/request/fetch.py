"""Fetches files of the web that a request names, without becoming a way into the server's own network.

A name is resolved here, all of its addresses must be public, and the connection goes to the very address that was
checked: not even a name server that answers differently the second time leads elsewhere. So does every redirect.
"""

import asyncio
import ipaddress
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import httpx

from leftoff.errors import LeftoffError
from leftoff.lru import LruCache

_SECONDS = 20.0
_MAX_REDIRECTS = 3
_KEPT_BYTES = 64 << 20
_KEPT_SECONDS = 600  # a conversation names its pictures with every turn
_AT_ONCE = 8  # for each owner
_NAMES_AT_ONCE = 32  # a name that nobody answers for takes a thread for half a minute
# Addresses that lead on to others: to any of IPv4, or into the network of their gateway.
_TUNNELS = [*map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))]


class FetchError(LeftoffError):
    """A file could not be fetched, or may not be."""


@dataclass(frozen=True)
class _Kept:
    data: bytes
    until: float


class WebFiles:
    """Fetches files, and keeps the latest ones for some minutes. What one owner has asked for is not used for another.

    `is_allowed` says which addresses may be connected to.
    """

    def __init__(self, *, max_bytes: int, is_allowed: Callable[[str], bool] | None = None) -> None:
        self._max_bytes = max_bytes
        self._is_allowed = is_allowed or is_public
        self._at_once: defaultdict[str, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, _AT_ONCE))
        self._names = ThreadPoolExecutor(_NAMES_AT_ONCE, "leftoff-names")  # the event loop's own threads are few
        self._kept: LruCache[tuple[str, str], _Kept] = LruCache(
            max_bytes=_KEPT_BYTES, size_of=lambda _, kept: len(kept.data)
        )

    async def fetch(self, url: str, owner: str, hold: Callable[[int], None] = lambda _: None) -> bytes:
        """`hold` is told of bytes as they come, and may raise to end the work."""
        kept = self._kept.get((owner, url))
        if kept is not None and time.monotonic() < kept.until:
            hold(len(kept.data))
            return kept.data
        try:
            async with self._at_once[owner], asyncio.timeout(_SECONDS):
                data = await self._followed(url, hold)
        except TimeoutError as error:
            raise FetchError(f"took more than {_SECONDS:g} seconds to fetch") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise FetchError(f"cannot be fetched: {str(error)[:200] or type(error).__name__}") from error
        self._kept.put((owner, url), _Kept(data, time.monotonic() + _KEPT_SECONDS))
        return data

    def forget(self, owner: str) -> None:
        """Drops the files that this owner has asked for."""
        for key in [key for key, _ in self._kept.items() if key[0] == owner]:
            self._kept.pop(key)

    async def _followed(self, url: str, hold: Callable[[int], None]) -> bytes:
        target = httpx.URL(url)
        # No proxy of the environment, no cookies: what is fetched is what anybody would get.
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=_SECONDS) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                request = await self._pinned(client, target)
                async with aclosing(await client.send(request, stream=True)) as response:
                    if not response.has_redirect_location:
                        return await self._body(response, hold)
                    target = target.join(response.headers["location"])
        raise FetchError(f"is redirected more than {_MAX_REDIRECTS} times")

    async def _pinned(self, client: httpx.AsyncClient, url: httpx.URL) -> httpx.Request:
        """A request for a URL, to an address that was checked."""
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise FetchError("must be at an http or https URL without a password")
        port = url.port or (443 if url.scheme == "https" else 80)
        resolve = partial(socket.getaddrinfo, url.host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._names, resolve)
        addresses = [str(info[4][0]) for info in found]
        refused = next((address for address in addresses if not self._is_allowed(address)), None)
        if refused is not None or not addresses:
            raise FetchError(f"is at {url.host!r}, which is not a public address: send the file itself")
        headers = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity"}
        extensions = {"sni_hostname": url.host} if url.scheme == "https" else {}
        return client.build_request("GET", url.copy_with(host=addresses[0]), headers=headers, extensions=extensions)

    async def _body(self, response: httpx.Response, hold: Callable[[int], None]) -> bytes:
        if response.status_code != 200:
            raise FetchError(f"cannot be fetched: the server of its URL answers {response.status_code}")
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            hold(len(chunk))
            if len(data) > self._max_bytes:
                raise FetchError(f"has more than {self._max_bytes} bytes")
        return bytes(data)


def is_public(address: str) -> bool:
    """Whether anybody in the internet could reach it."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    if inner is not None:
        found = inner
    return found.is_global and not found.is_multicast and not any(found in network for network in _TUNNELS)
