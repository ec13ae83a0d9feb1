"""Which web pages may use this server: its own, and those of the origins that `--cors` allows.

CORS alone keeps a foreign page from reading an answer, not from asking: a form, or a `fetch` of `text/plain`, reaches
the server without asking first. Browsers say where a request comes from; programs such as curl or an SDK say nothing.
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Scope

from leftoff.config import ANY
from leftoff.server.http.errors import ApiError
from leftoff.server.http.middleware import HEALTH, Guard

# `none` is the user: an address that was typed, or a bookmark. `same-site` is refused as `cross-site` is: another port
# of localhost is the same site, and another program.
_OWN_SITES = ("same-origin", "none")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN_CHARACTERS = 100


class OriginCheck(Guard):
    """Refuses requests of foreign web pages on every route but health, which reveals nothing."""

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
