"""Tenants: requests with different API keys, or with different cache salts, never share cached state."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from blake3 import blake3
from starlette.requests import Request

from leftoff.scheduler.run import Run
from leftoff.types import owner_of

_DIGITS = 24


@dataclass(frozen=True)
class Tenant:
    """The holder of an API key, named by a hash of it; or everybody, where the settings name no key.

    The hash is keyed with a secret, since names are visible on the wire and on disk, and keys may be weak.
    """

    name: str
    secret: bytes = field(repr=False)
    is_alone: bool = True  # there is no other tenant: this one may see what concerns the whole server

    @classmethod
    def of(cls, key: str, secret: bytes, *, is_alone: bool = True) -> "Tenant":
        return cls(_hash(secret, "key", key) if key else "", secret, is_alone)

    def namespace(self, salt: str | None) -> str:
        """The cache namespace of this tenant under a salt. Without keys and salts it is the empty string."""
        if not salt:
            return f"{self.name}/" if self.name else ""
        return f"{self.name}/{_hash(self.secret, 'salt', self.name, salt)}"

    def sees(self, namespace: str) -> bool:
        return owner_of(namespace) == self.name

    def own(self, runs: Iterable[Run]) -> list[Run]:
        """Those of the runs that are this tenant's. Called on the engine's thread."""
        return [run for run in runs if self.sees(run.job.namespace)]


def tenant_of(request: Request) -> Tenant:
    """The tenant of a request, as the middleware has found it."""
    tenant = request.state.tenant
    assert isinstance(tenant, Tenant)
    return tenant


def namespace_of(request: Request, salt: str | None) -> str:
    """The namespace of a request, whose salt may come in the body or as a header."""
    return tenant_of(request).namespace(salt or request.headers.get("x-cache-salt"))


def _hash(secret: bytes, *parts: str) -> str:
    """The first part says what is hashed: by a chosen salt no client can compute the name of a key."""
    return blake3("\0".join(parts).encode("utf-8", "surrogatepass"), key=secret).hexdigest()[:_DIGITS]
