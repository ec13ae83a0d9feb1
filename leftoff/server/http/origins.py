"""Web pages that ask: those of this server and of the origins that `--cors` allows are served, all others are refused.

CORS alone keeps a foreign page from reading an answer, not from asking: a form, or a `fetch` of `text/plain`, reaches
the server without asking first. Browsers say where a request comes from; programs such as curl or an SDK say nothing.
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from leftoff.config import ANY
from leftoff.server.http.errors import ApiError, error_response
from leftoff.server.http.middleware import HEALTH

# `none` is the user: an address that was typed, or a bookmark. `same-site` is refused as `cross-site` is: another port
# of localhost is the same site, and another program.
_OWN_SITES = ("same-origin", "none")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN_CHARACTERS = 100


class OriginCheck:
    """Stands before every route but health, which tells nothing."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            error = self._problem(Headers(scope=scope))
            if error is not None and not _is_followed_link(scope):
                await error_response(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _problem(self, headers: Headers) -> ApiError | None:
        origins, host = headers.getlist("origin"), headers.get("host", "")
        site = headers.get("sec-fetch-site", "none")
        if ANY in self._allowed or (origins and all(origin in self._allowed for origin in origins)):
            return None
        foreign = [origin for origin in origins if origin not in self._allowed and not _is_own(origin, host)]
        if foreign:
            return _refused(f"of the origin {foreign[0][:_SHOWN_CHARACTERS]!r}", _way_out(foreign[0]))
        if site not in _OWN_SITES:
            way_out = "ask by fetch() from an origin that --cors allows"
            return _refused(f"of another origin (Sec-Fetch-Site: {site[:_SHOWN_CHARACTERS]})", way_out)
        return None


def _is_own(origin: str, host: str) -> bool:
    """Whether a page was served under this Host, which is a known one. A proxy before this server may add TLS."""
    scheme, separator, authority = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    if not separator or port is None:
        return False
    return authority.removesuffix(f":{port}") == host.lower().removesuffix(f":{port}")


def _is_followed_link(scope: Scope) -> bool:
    """Shows the start page to the user, and nothing to the page with the link on it."""
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
