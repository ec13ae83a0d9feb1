"""OpenAI's Responses. A request may go on from a stored response, or in a conversation, and name items by their ids."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from leftoff.config import MIB
from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint, while_connected
from leftoff.server.http.errors import ApiError, PromptTooLongError, bad_field
from leftoff.server.reply.response import Json, answer, json_response
from leftoff.server.reply.waiting import WaitingRoom
from leftoff.server.request.build import chat_jobs, count_tokens
from leftoff.server.request.fields import ChatRequest, Message
from leftoff.server.responses.conversations import Conversations, KeptConversation
from leftoff.server.responses.convert import Function, Items, as_chat, functions_of
from leftoff.server.responses.store import Stored, TenantStore
from leftoff.server.responses.types import Effort, InputItem, ResponsesRequest, Text, TextFormat
from leftoff.server.responses.writer import STREAM, Keep, ResponseWriter
from leftoff.server.tenant import namespace_of, tenant_of

_MAX_RESPONSES = 4096
_MAX_BYTES = 128 * MIB


@dataclass(frozen=True)
class Asked:
    """A request as a chat, and where its new items go when it is answered."""

    chat: ChatRequest
    functions: list[Function]
    items: list[InputItem]
    before: Stored | None
    messages: list[Message]  # that follow those of `before`
    conversation: KeptConversation | None


class Responses(Dialect):
    """Create, retrieve and delete responses, and the conversations they belong to."""

    def __init__(self, hosts: Hosts, num_tenants: int) -> None:
        super().__init__(hosts)
        self._store: TenantStore[Stored] = TenantStore(
            max_entries=_MAX_RESPONSES, max_bytes=_MAX_BYTES, num_tenants=num_tenants
        )
        self._conversations = Conversations(num_tenants)

    def endpoints(self) -> list[Endpoint]:
        room = WaitingRoom(self._hosts, STREAM)
        create = Endpoint("POST", "/v1/responses", "Create a response", room.before(self.create), ResponsesRequest)
        count = Endpoint("POST", "/v1/responses/input_tokens", "Tokens of an input", self.count, ResponsesRequest)
        return [
            create,
            create.at("/responses"),
            count,
            Endpoint("GET", "/v1/responses/{id}", "A stored response", self.retrieve),
            Endpoint("DELETE", "/v1/responses/{id}", "Delete a stored response", self.delete),
            *self._conversations.endpoints(),
        ]

    async def create(self, request: Request, body: ResponsesRequest) -> HttpResponse:
        asked = self._asked(request, body)
        host = await self._hosts.of(body.model)
        with _input_named():
            jobs = await chat_jobs(host, request, asked.chat)
        namespaced = {function.flat_name: function for function in asked.functions if function.namespace}
        writer = ResponseWriter(_begun(host, body, asked), self._keep(request, body, asked), namespaced)
        return await answer(request, host, jobs, writer.begun["id"], writer, stream=bool(body.stream))

    @while_connected
    async def count(self, request: Request, body: ResponsesRequest) -> HttpResponse:
        asked = self._asked(request, body)
        host = await self._hosts.of(body.model)
        with _input_named():
            num_tokens = await count_tokens(host, request, asked.chat)
        return json_response({"object": "response.input_tokens", "input_tokens": num_tokens})

    async def retrieve(self, request: Request) -> HttpResponse:
        return json_response(self._stored(request, request.path_params["id"]).response)

    async def delete(self, request: Request) -> HttpResponse:
        response_id = request.path_params["id"]
        self._stored(request, response_id)
        self._store.delete(tenant_of(request).name, response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the responses and conversations of the namespaces that are meant."""
        self._store.forget(is_meant)
        self._conversations.forget(is_meant)

    def _asked(self, request: Request, body: ResponsesRequest) -> Asked:
        if body.previous_response_id and body.conversation:
            raise bad_field("conversation", "cannot be given with previous_response_id: give one of them")
        before = self._before(request, body.previous_response_id) if body.previous_response_id else None
        conversation = self._conversations.find(request, body.conversation) if body.conversation else None
        new = Items(body.input, find=lambda name: self._item(request, name))
        messages = new.messages if conversation is None else Items([*conversation.input, *new.items]).messages
        whole = [*(before.messages if before else ()), *messages]
        if not whole:
            raise bad_field("input", "is empty: there is nothing to go on from")
        functions = functions_of(body)
        return Asked(as_chat(body, whole, functions), functions, new.items, before, messages, conversation)

    def _before(self, request: Request, response_id: str) -> Stored:
        """The response that a request goes on from."""
        return self._stored(request, response_id, param="previous_response_id", way_out=". Send the whole input")

    def _stored(self, request: Request, response_id: str, param: str | None = None, way_out: str = "") -> Stored:
        stored = self._store.get(tenant_of(request).name, response_id)
        if stored is None:
            problem = f"there is no response {response_id!r} here: it was not stored, or is forgotten{way_out}"
            raise ApiError(404, problem, param=param, code="previous_response_not_found")
        return stored

    def _item(self, request: Request, name: str) -> InputItem | None:
        """An item of a stored response. Its id has the response's name in it: `msg_NAME_0`."""
        response_name = name.partition("_")[2].rpartition("_")[0]
        stored = self._store.get(tenant_of(request).name, f"resp_{response_name}")
        for item in stored.response["output"] if stored else ():
            if item["id"] == name:
                return msgspec.convert(item, InputItem)
        return None

    def _keep(self, request: Request, body: ResponsesRequest, asked: Asked) -> Keep:
        def keep(response: Json, reply: Message) -> None:
            if body.store is not False:
                stored = Stored.after(asked.before, response, [*asked.messages, reply])
                self._store.put(namespace_of(request, asked.chat.cache_salt), response["id"], stored)
            if asked.conversation is not None:
                items = msgspec.to_builtins([*asked.items, *response["output"]])
                self._conversations.extend(request, asked.conversation.id, items)

        return keep


@contextmanager
def _input_named() -> Iterator[None]:
    """Has the error for a prompt that is too long name the field of responses instead of that of chats."""
    try:
        yield
    except PromptTooLongError as error:
        error.param = "input"
        raise


def _begun(host: ModelHost, body: ResponsesRequest, asked: Asked) -> Json:
    """The response while it is empty. As OpenAI does, it repeats the settings of the request."""
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "created_at": int(time.time()),
        "model": host.name_for(body.model, body.scales),
        "object": "response",
        "status": "in_progress",
        "background": False,
        "conversation": {"id": asked.conversation.id} if asked.conversation else None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": body.reasoning or Effort(),
        "store": body.store is not False,
        "temperature": body.number("temperature"),
        "text": body.text or Text(TextFormat("text")),
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": body.number("top_p"),
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }
