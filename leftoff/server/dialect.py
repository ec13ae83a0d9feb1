"""What an API is to the server: routes, and the shape of its errors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ErrorShape


class Dialect(ABC):
    """The routes of one API. `error_shapes` maps path prefixes to the shape of its errors, if that is not OpenAI's."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {}

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    @abstractmethod
    def endpoints(self) -> list[Endpoint]: ...
