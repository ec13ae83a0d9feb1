"""ASGI middleware before every route: API keys, and limits on the size of bodies."""

import hmac
from abc import ABC, abstractmethod
from collections.abc import Sequence

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leftoff.config import MIB
from leftoff.server.http.errors import ApiError, error_response, too_much_at_once
from leftoff.server.tenant import Tenant

HEALTH = frozenset({"/health", "/v1/health"})
_PUBLIC = HEALTH | {"/"}
PAGE_FILES = "/page/"  # public too: the page asks for the key, and shows nothing before it has it
SCENES = f"{PAGE_FILES}scenes"  # not public: no file, but made for the model
# A client that is cut off while it still sends may never see the answer: up to this much is read and thrown away first.
_DRAINED_BYTES = 256 * MIB
# Memory for the bodies of all requests together; there is room for two of the largest in any case.
_BYTES_OF_ALL = 512 * MIB
HOLD = "hold"  # in the state of a request: counts bytes that it holds beside its body, or raises an `ApiError`


class Guard(ABC):
    """Middleware that lets a request pass, or answers it with an error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            try:
                self.check(scope)
            except ApiError as error:
                app = error_response(error, scope)
        await app(scope, receive, send)

    @abstractmethod
    def check(self, scope: Scope) -> None:
        """Raise an `ApiError` if the request may not pass."""
        ...


class ApiKeys(Guard):
    """Requires a known API key, except on public paths, and puts the tenant it belongs to into the request's state."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], secret: bytes) -> None:
        super().__init__(app)
        is_alone = len(set(keys)) <= 1
        self._nobody = Tenant.of("", secret, is_alone=is_alone)
        self._tenants = {_digest(key): Tenant.of(key, secret, is_alone=is_alone) for key in keys}

    def check(self, scope: Scope) -> None:
        keys = _keys_of(Headers(scope=scope))
        tenant = self._tenant_of(keys)
        if tenant is None and not _is_public(scope["path"]):
            raise _refusal(keys)
        scope.setdefault("state", {})["tenant"] = tenant or self._nobody

    def _tenant_of(self, keys: Sequence[str]) -> Tenant | None:
        """The holder of the first known key. Without configured keys, all clients are one tenant."""
        if not self._tenants:
            return self._nobody
        known = [tenant for key in keys for tenant in self._holders(key)]
        return known[0] if known else None

    def _holders(self, key: str) -> list[Tenant]:
        """Compares in constant time: always with all keys, by digests of equal length."""
        digest = _digest(key)
        matches = [(hmac.compare_digest(digest, known), tenant) for known, tenant in self._tenants.items()]
        return [tenant for is_same, tenant in matches if is_same]


class BodyLimit:
    """Refuses a body above the limit, whether its length is declared or not, and one that exceeds the limit of all.

    What is fetched for a request counts as a part of its body: see `HOLD`.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._limit_of_all = max(_BYTES_OF_ALL, 2 * limit_bytes)
        self._held_bytes = 0  # by all requests that are being read or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if _declared_bytes(headers) > self._limit_bytes:
            if "expect" not in headers:  # else the client waits for leave to send
                await _drain(receive)
            await error_response(self._too_large(), scope)(scope, receive, send)
            return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_bytes = 0

        def hold(num_more: int) -> None:
            nonlocal num_bytes
            num_bytes += num_more
            self._held_bytes += num_more
            if problem := self._problem(num_bytes):
                raise problem

        async def counted() -> Message:
            message = await receive()
            try:
                hold(len(message.get("body", b"")))
            except ApiError:
                if message.get("more_body"):
                    await _drain(receive)
                raise
            return message

        scope.setdefault("state", {})[HOLD] = hold
        try:
            await self._app(scope, counted, send)
        finally:
            self._held_bytes -= num_bytes

    def _problem(self, num_bytes: int) -> ApiError | None:
        if num_bytes > self._limit_bytes:
            return self._too_large()
        return too_much_at_once(self._limit_of_all) if self._held_bytes > self._limit_of_all else None

    def _too_large(self) -> ApiError:
        limit = self._limit_bytes / MIB
        problem = f"the body and the files that it names are larger than {limit:g} MiB"
        message = f"{problem}: send less, or start the server with a larger --max-body"
        return ApiError(413, message, code="body_too_large", headers={"Connection": "close"})


def _is_public(path: str) -> bool:
    return path in _PUBLIC or (path.startswith(PAGE_FILES) and path != SCENES)


async def _drain(receive: Receive) -> None:
    num_bytes = 0
    while num_bytes < _DRAINED_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if not message.get("more_body"):
            return


def _declared_bytes(headers: Headers) -> int:
    declared = headers.get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


def _keys_of(headers: Headers) -> list[str]:
    """Clients may send both headers, one of them configured for another server."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    given = (key.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
    return [*filter(None, given)]


def _digest(key: str) -> bytes:
    return blake3(key.encode("utf-8", "surrogatepass")).digest()


def _refusal(keys: Sequence[str]) -> ApiError:
    problem = "this API key is not known" if keys else "an API key is needed"
    return ApiError(
        401,
        f"{problem}: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
        code="invalid_api_key",
        kind="authentication_error",
        headers={"WWW-Authenticate": "Bearer"},
    )
