"""OpenAI's Responses. A request may continue a stored response, by its id."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from leftoff.config import MIB
from leftoff.lru import LruCache
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.http.errors import ApiError, PromptTooLongError, bad_field
from leftoff.server.reply.response import answer, json_response
from leftoff.server.request.build import chat_jobs
from leftoff.server.request.fields import Message
from leftoff.server.request.job import ReplyJob
from leftoff.server.responses.convert import Items, as_chat
from leftoff.server.responses.types import Effort, Response, ResponsesRequest, Text, TextFormat
from leftoff.server.responses.writer import Keep, ResponseWriter
from leftoff.server.service import Service
from leftoff.server.tenant import tenant_of

_MOST_RESPONSES = 4096
_MOST_BYTES = 128 * MIB


@dataclass(frozen=True)
class Stored:
    """A response, and the conversation up to its end, without instructions: each request brings its own."""

    response: Response
    messages: tuple[Message, ...]
    num_bytes: int


class ResponseStore:
    """The latest responses, in memory, by tenant and id. For the event loop only."""

    def __init__(self, most_responses: int = _MOST_RESPONSES, most_bytes: int = _MOST_BYTES) -> None:
        self._stored: LruCache[tuple[str, str], Stored] = LruCache(
            max_entries=most_responses, max_bytes=most_bytes, size_of=lambda _, stored: stored.num_bytes
        )

    def add(self, tenant: str, response: Response, before: Stored | None, new: Sequence[Message]) -> None:
        """Store a response that follows `before`. Messages they share count for both: either may be evicted first."""
        messages = (*(before.messages if before else ()), *new)
        num_bytes = len(msgspec.json.encode([response, *new])) + (before.num_bytes if before else 0)
        self._stored.put((tenant, response.id), Stored(response, messages, num_bytes))

    def get(self, tenant: str, response_id: str) -> Stored | None:
        return self._stored.peek((tenant, response_id))

    def delete(self, tenant: str, response_id: str) -> bool:
        return self._stored.pop((tenant, response_id)) is not None


class Responses(Dialect):
    """Create, retrieve and delete responses."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = ResponseStore()

    def endpoints(self) -> list[Endpoint]:
        create = Endpoint("POST", "/v1/responses", "Create a response", self.create, ResponsesRequest)
        return [
            create,
            create.at("/responses"),
            Endpoint("GET", "/v1/responses/{id}", "A stored response", self.retrieve),
            Endpoint("DELETE", "/v1/responses/{id}", "Delete a stored response", self.delete),
        ]

    async def create(self, request: Request) -> HttpResponse:
        body = await read_body(request, ResponsesRequest)
        before = self._stored(request, body.previous_response_id) if body.previous_response_id else None
        new = Items(body.input).messages
        messages = [*(before.messages if before else ()), *new]
        if not messages:
            raise bad_field("input", "is empty: there is nothing to go on from")
        jobs = await self._jobs(request, body, messages)
        writer = ResponseWriter(self._begun(body), self._keep(request, body, before, new))
        return await answer(request, self._service, jobs, writer.begun.id, writer, stream=bool(body.stream))

    async def retrieve(self, request: Request) -> HttpResponse:
        return json_response(self._stored(request, request.path_params["id"]).response)

    async def delete(self, request: Request) -> HttpResponse:
        stored = self._stored(request, request.path_params["id"])
        self._store.delete(tenant_of(request).name, stored.response.id)
        return json_response({"id": stored.response.id, "object": "response", "deleted": True})

    async def _jobs(self, request: Request, body: ResponsesRequest, messages: list[Message]) -> list[ReplyJob]:
        try:
            return await chat_jobs(self._service, request, as_chat(body, messages))
        except PromptTooLongError as error:  # it names the field of chats
            raise PromptTooLongError(
                error.num_tokens, error.context_tokens, "input", is_exact=error.is_exact
            ) from error

    def _stored(self, request: Request, response_id: str) -> Stored:
        stored = self._store.get(tenant_of(request).name, response_id)
        if stored is None:
            raise ApiError(
                404,
                f"there is no response {response_id!r} here: it was not stored, or is forgotten. Send the whole input",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return stored

    def _keep(self, request: Request, body: ResponsesRequest, before: Stored | None, new: list[Message]) -> Keep:
        def keep(response: Response, reply: Message) -> None:
            if body.store is not False:
                self._store.add(tenant_of(request).name, response, before, [*new, reply])

        return keep

    def _begun(self, body: ResponsesRequest) -> Response:
        return Response(
            id=f"resp_{uuid.uuid4().hex}",
            created_at=int(time.time()),
            model=self._service.model_name,
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            parallel_tool_calls=body.parallel_tool_calls is not False,
            previous_response_id=body.previous_response_id,
            reasoning=body.reasoning or Effort(),
            store=body.store is not False,
            temperature=body.number("temperature"),
            text=body.text or Text(TextFormat("text")),
            tool_choice=body.tool_choice or "auto",
            tools=body.tools or [],
            top_p=body.number("top_p"),
            user=body.user,
        )
