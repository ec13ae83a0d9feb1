"""Where requests may come from: the hosts this server answers to, and the web pages that may use it.

Checking the Host header prevents DNS rebinding. A page of evil.com can let its name point to 127.0.0.1 once it is
loaded; its browser then takes this server for evil.com and lets the page read every answer. Host still says evil.com.

CORS alone keeps a foreign page from reading an answer, not from asking: a form, or a `fetch` of `text/plain`, reaches
the server without asking first. Browsers say where a request comes from; programs such as curl or an SDK say nothing.
"""

import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Scope

from leftoff.server.http.errors import ApiError
from leftoff.server.http.middleware import HEALTH, Guard
from leftoff.setting import ANY, host_name

# What containers call the machine they run on. These names are reserved: nobody can register them.
_CONTAINER_NAMES = ("host.docker.internal", "host.containers.internal")
# `none` is the user: an address that was typed, or a bookmark. `same-site` is refused as `cross-site` is: another port
# of localhost is the same site, and another program.
_OWN_SITES = ("same-origin", "none")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class KnownHosts:
    """Accepted Host headers. `any_address` accepts every IP address: without a name, nothing can have been rebound."""

    names: frozenset[str]
    any_address: bool = False
    any_host: bool = False

    @classmethod
    def of(cls, host: str, address: str, allowed: Collection[str] = ()) -> "KnownHosts":
        """The hosts of a server that was told to listen on `host` and is bound to `address`.

        One that listens beyond loopback may stand behind addresses it cannot know, such as those of the machine that
        runs its container. Whoever controls the names of a local network reaches it directly, without rebinding.
        """
        is_remote = not ip_address(address).is_loopback
        own = ("localhost", host.lower(), address, *(_own_names() if is_remote else ()))
        given = filter(None, map(host_name, allowed))
        return cls(frozenset(map(_normal, (*own, *given))), is_remote, ANY in allowed)

    def knows(self, host: str) -> bool:
        """`host` is the value of a Host header, with a port or without."""
        if self.any_host:
            return True
        name = host_name(host)
        if name is None:
            return False
        address = _address(name)
        is_open = address is not None and (address.is_loopback or self.any_address)
        return is_open or _normal(name) in self.names


class HostCheck(Guard):
    """Refuses unknown hosts on every route, health included: an answer under a wrong name would mislead a monitor."""

    def __init__(self, app: ASGIApp, hosts: KnownHosts) -> None:
        super().__init__(app)
        self._hosts = hosts

    def check(self, scope: Scope) -> None:
        """HTTP/1.0 has no Host, and some monitors speak it. Browsers always send one, so nothing is rebound without."""
        hosts = Headers(scope=scope).getlist("host")
        if not hosts and scope["http_version"] == "1.0":
            return
        if len(hosts) != 1:
            raise ApiError(400, f"there are {len(hosts)} Host headers: send exactly one", code="bad_host")
        if not self._hosts.knows(hosts[0]):
            raise _unknown(hosts[0])


def _unknown(host: str) -> ApiError:
    name = host_name(host) or "NAME"
    shown = f"[{name}]" if ":" in name else name
    return ApiError(
        403,
        f"this server is not known as {host[:_SHOWN_CHARACTERS]!r} (Host header): reach it by localhost or by the "
        f"address it listens on, or start it with --allowed-host {shown[:_SHOWN_CHARACTERS]}",
        code="unknown_host",
        kind="permission_error",
    )


def _own_names() -> list[str]:
    """The names of this machine, with `.local` for mDNS."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return [*filter(None, (name, short, f"{short}.local" if short else "")), *_CONTAINER_NAMES]


def _normal(name: str) -> str:
    """One spelling for each IP address; other names as they are."""
    return str(_address(name) or name)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


class OriginCheck(Guard):
    """Refuses requests of foreign web pages on every route but health, which tells no more than the model."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        super().__init__(app)
        self._allowed = allowed

    def check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        origins, host = headers.getlist("origin"), headers.get("host", "")
        site = headers.get("sec-fetch-site", "none")
        if scope["path"] in HEALTH or _is_followed_link(scope) or ANY in self._allowed:
            return
        if origins and all(origin in self._allowed for origin in origins):
            return
        foreign = [origin for origin in origins if origin not in self._allowed and not _is_own(origin, host)]
        if foreign:
            raise _refused(f"of the origin {foreign[0][:_SHOWN_CHARACTERS]!r}", _way_out(foreign[0]))
        if site not in _OWN_SITES:
            way_out = "ask by fetch() from an origin that --cors allows"
            raise _refused(f"of another origin (Sec-Fetch-Site: {site[:_SHOWN_CHARACTERS]})", way_out)


def _is_own(origin: str, host: str) -> bool:
    """Whether the page came from this server, by its Host header. The scheme may differ: a proxy may add TLS."""
    scheme, separator, authority = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    if not separator or port is None:
        return False
    return authority.removesuffix(f":{port}") == host.lower().removesuffix(f":{port}")


def _is_followed_link(scope: Scope) -> bool:
    """A link to the start page, followed by the user: the page with the link learns nothing."""
    headers = Headers(scope=scope)
    is_navigation = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return is_navigation and "origin" not in headers and (scope["method"], scope["path"]) == ("GET", "/")


def _way_out(origin: str) -> str:
    if origin == "null":  # every sandboxed frame has it
        return "serve the page from a host of its own and allow that"
    return f"to allow it, start the server with --cors {origin[:_SHOWN_CHARACTERS]}"


def _refused(page: str, way_out: str) -> ApiError:
    message = f"a web page {page} may not use this server: {way_out}"
    return ApiError(403, message, code="foreign_origin", kind="permission_error")
