"""Who asks: requests under different API keys, or with different salts, never share anything."""

from dataclasses import dataclass, field

from blake3 import blake3
from starlette.requests import Request

from leftoff.types import owner_of

_DIGITS = 24


@dataclass(frozen=True)
class Tenant:
    """The holder of an API key, of which only a hash is kept; or everybody, where the settings name no key.

    The hash is keyed with a secret that is not told: names are seen on the wire and on disk, and keys may be weak.
    """

    name: str
    secret: bytes = field(repr=False)
    is_alone: bool = True  # no other can ask: what concerns the whole server is this tenant's business

    @classmethod
    def of(cls, key: str, secret: bytes, *, is_alone: bool = True) -> "Tenant":
        return cls(_hash(secret, "key", key) if key else "", secret, is_alone)

    def namespace(self, salt: str | None) -> str:
        """The tree of this tenant under a salt. Everybody without a salt is the empty namespace, in every folder."""
        if not salt:
            return f"{self.name}/" if self.name else ""
        return f"{self.name}/{_hash(self.secret, 'salt', self.name, salt)}"

    def sees(self, namespace: str) -> bool:
        return owner_of(namespace) == self.name


def tenant_of(request: Request) -> Tenant:
    tenant = request.state.tenant
    assert isinstance(tenant, Tenant)
    return tenant


def namespace_of(request: Request, salt: str | None) -> str:
    """A salt may come in the body or as a header."""
    return tenant_of(request).namespace(salt or request.headers.get("x-cache-salt"))


def _hash(secret: bytes, *parts: str) -> str:
    """The first parts say what is hashed: by salts of their own, clients must not find out the names of keys."""
    return blake3("\0".join(parts).encode("utf-8", "surrogatepass"), key=secret).hexdigest()[:_DIGITS]
