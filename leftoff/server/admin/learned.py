"""GET /cache/learned: the moves that `--move learn` has learned for a tenant; and to forget one of them."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.joined import Answer, shown
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
from leftoff.server.tenant import tenant_of


class LearnedApi(Dialect):
    """Show and forget learned moves."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/cache/learned", "The moves that were learned from headers", self.show),
            Endpoint("DELETE", "/cache/learned/{name}", "Forget one, and do not learn it again", self.forget),
        ]

    async def show(self, request: Request) -> Response:
        tenant = tenant_of(request)

        async def show(host: ModelHost) -> Answer:
            learner = host.chats.learner
            moves = await aside(host, lambda: learner.moves(tenant.sees) if learner is not None else [])
            return {"learned": [{"name": move.name, "lines": str(move)} for move in moves]}

        return json_response(await shown(self._hosts, request, show))

    async def forget(self, request: Request) -> Response:
        tenant, name = tenant_of(request), request.path_params["name"]
        hosts = self._hosts.opened(request.query_params.get("model"))
        learners = [(host, learner) for host in hosts if (learner := host.chats.learner) is not None]
        if not any([await aside(host, partial(learner.refuse, name, tenant.sees)) for host, learner in learners]):
            raise ApiError(404, f"there is no move {name!r}: GET /cache/learned lists them", code="not_found")
        return json_response({"forgotten": name})
