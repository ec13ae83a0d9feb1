"""Who asks: requests under different API keys, or with different salts, never share anything."""

from dataclasses import dataclass

from blake3 import blake3
from starlette.requests import Request

_DIGITS = 24


@dataclass(frozen=True)
class Tenant:
    """The holder of an API key, of which only a hash is kept; or everybody, where the settings name no key."""

    name: str

    @classmethod
    def of(cls, key: str) -> "Tenant":
        return cls(_hash(key))

    def namespace(self, salt: str | None) -> str:
        """The tree of this tenant under a salt. Everybody without a salt is the empty namespace."""
        return f"{self.name}/{_hash(salt)}" if self.name or salt else ""

    def sees(self, namespace: str) -> bool:
        return namespace.partition("/")[0] == self.name


def tenant_of(request: Request) -> Tenant:
    tenant = request.state.tenant
    assert isinstance(tenant, Tenant)
    return tenant


def namespace_of(request: Request, salt: str | None) -> str:
    """A salt may come in the body or as a header."""
    return tenant_of(request).namespace(salt or request.headers.get("x-cache-salt"))


def _hash(text: str | None) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS] if text else ""
