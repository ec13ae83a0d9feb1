"""Anthropic's Messages, and the counting of their tokens."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from leftoff.server.anthropic.convert import MarkedMessages, as_chat
from leftoff.server.anthropic.types import MessagesRequest
from leftoff.server.anthropic.writer import STREAM, MessageWriter, error_body
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint, while_connected
from leftoff.server.http.errors import ErrorShape
from leftoff.server.reply.response import answer, json_response
from leftoff.server.reply.waiting import WaitingRoom
from leftoff.server.request.build import chat_jobs, count_tokens
from leftoff.types import Prompt

_MAX_MARKS = 4  # as many as Anthropic takes; each costs a snapshot


class Anthropic(Dialect):
    """Messages, and how many tokens they have."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {"/v1/messages": error_body}

    def endpoints(self) -> list[Endpoint]:
        room = WaitingRoom(self._hosts, STREAM)
        return [
            Endpoint("POST", "/v1/messages", "Reply to messages", room.before(self.messages), MessagesRequest),
            Endpoint("POST", "/v1/messages/count_tokens", "Tokens of messages", self.count_tokens, MessagesRequest),
            Endpoint("GET", "/api/hello", "Whether the server is there: Claude Code asks when it starts", self.hello),
        ]

    async def hello(self, _: Request) -> Response:
        return json_response({"message": "hello"})

    async def messages(self, request: Request, body: MessagesRequest) -> Response:
        marked = MarkedMessages(body)
        host = await self._hosts.of(body.model)
        (job,) = await chat_jobs(host, request, as_chat(body, marked.messages))
        marks = _marks(job.prompt, marked)
        job = replace(job, prompt=replace(job.prompt, breaks=tuple(sorted({*job.prompt.breaks, *marks}))))
        writer = MessageWriter(f"msg_{uuid.uuid4().hex}", host.name_for(body.model, body.scales), max(marks, default=0))
        return await answer(request, host, [job], writer.id, writer, stream=bool(body.stream))

    @while_connected
    async def count_tokens(self, request: Request, body: MessagesRequest) -> Response:
        num_tokens = await count_tokens(
            await self._hosts.of(body.model), request, as_chat(body, MarkedMessages(body).messages)
        )
        return json_response({"input_tokens": num_tokens})


def _marks(prompt: Prompt, marked: MarkedMessages) -> set[int]:
    """Where marked messages end in the prompt. Counted from the last: rules and the overflow cut messages in front."""
    from_end = sorted(len(marked.messages) - index for index in marked.indices)
    return {prompt.messages[-place].end for place in from_end[:_MAX_MARKS] if place <= len(prompt.messages)}
