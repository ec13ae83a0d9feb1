"""The models that answer behind one address."""

from collections.abc import Iterator

from leftoff.host.host import ModelHost
from leftoff.host.request_log import RequestLog


class Hosts:
    """The hosts of a server. There is one now, which answers whatever model a request names."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    def of(self, model: str | None = None) -> ModelHost:  # noqa: ARG002
        """The host of the model that a request names; without a name, the one that answers then. Not to be kept."""
        return self._host

    def __iter__(self) -> Iterator[ModelHost]:
        yield self._host

    @property
    def log(self) -> RequestLog:
        """Of the requests to all of them."""
        return self._host.log

    @property
    def secret(self) -> bytes:
        """The names of tenants are hashed with it."""
        return self._host.secret
