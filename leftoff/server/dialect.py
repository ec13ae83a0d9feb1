"""What an API is to the server: routes, and the shape of its errors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from leftoff.host.host import ModelHost
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ErrorShape


class Dialect(ABC):
    """The routes of one API. `error_shapes` maps path prefixes to the shape of its errors, if that is not OpenAI's."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {}

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def _host_of(self, request: Request) -> ModelHost:
        """The host of the model that the query names, as `?model=NAME`, or else of the first."""
        return await self._hosts.of(request.query_params.get("model"))

    @abstractmethod
    def endpoints(self) -> list[Endpoint]: ...
