"""What an API is to the server: routes, and the shape of its errors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from leftoff.host.host import ModelHost
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ErrorShape


class Dialect(ABC):
    """The routes of one API. `error_shapes` maps path prefixes to the shape of its errors, if that is not OpenAI's."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {}

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    @property
    def _host(self) -> ModelHost:
        """The host that answers where a request names no model."""
        return self._hosts.first

    @abstractmethod
    def endpoints(self) -> list[Endpoint]: ...
