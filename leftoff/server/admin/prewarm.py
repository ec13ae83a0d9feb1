"""Prewarming: compute the common beginning of conversations ahead of the first one, and pin it in the cache.

What to compute comes with a request, from a file, or from the headers that clients used last.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from leftoff.adapters import AdapterSet
from leftoff.chat.conversation import Conversation
from leftoff.chat.template.render import TemplateError
from leftoff.config import MIB
from leftoff.host.callers import PREWARM
from leftoff.host.header_file import HeaderFile, last_headers, read_header
from leftoff.host.host import ModelHost
from leftoff.sampling import Sampling
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.response import Replies, json_response
from leftoff.server.request.aside import aside
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.job import ReplyJob
from leftoff.server.tenant import namespace_of, tenant_of
from leftoff.setting import SettingError
from leftoff.types import HEADER_ROLES, Prompt

logger = logging.getLogger("leftoff.requests")

LAST = "last"  # in the setting: the headers that clients used last
_MAX_LAST = 3  # an agent, its sub-agents, another agent
_NUM_SHOWN = 60  # letters of a header, so that people know which it is
_ANY_USER_MESSAGE = {"role": "user", "content": "."}


class Prewarmed(Struct):
    """A pinned prefix: its first words, its tokens, how many of them were computed now, and its size."""

    begins: str
    tokens: int
    computed: int
    bytes: int


class PrewarmedLast(Struct):
    """Results for the headers that clients used last, the most recent header first."""

    headers: list[Prewarmed]
    failed: list[str]  # why, of each that could not be prewarmed


class NamedPrewarmed(NamedTuple):
    """A header that was prewarmed at start, and the value of `--prewarm` that asked for it."""

    name: str
    prewarmed: Prewarmed


class PrewarmApi(Dialect):
    """Prewarming by request."""

    def endpoints(self) -> list[Endpoint]:
        summary = "Compute messages ahead of the first conversation, and pin them"
        last = "Compute the headers that clients used last, and pin them"
        return [
            Endpoint("POST", "/cache/prewarm", summary, self.prewarm, ChatRequest),
            Endpoint("POST", "/cache/prewarm/last", last, self.prewarm_last),
        ]

    async def prewarm(self, request: Request, body: ChatRequest) -> Response:
        namespace = namespace_of(request, body.cache_salt)
        read = partial(body.conversation, namespace, shows_all_tools=True)
        model = body.model or request.query_params.get("model")
        host = await self._hosts.of(model)
        return json_response(await prewarm(host, read, request, host.adapters.asked(model, body.scales)))

    async def prewarm_last(self, request: Request) -> Response:
        tenant, model = tenant_of(request), request.query_params.get("model")
        host = await self._hosts.of(model)
        files = [file for file in last_headers(host.headers, tenant.name) if tenant.sees(file.namespace)]
        return json_response(await _prewarm_last(host, files, host.adapters.asked(model)))


async def prewarm(
    host: ModelHost,
    read: Callable[[], Conversation],
    request: Request | None = None,
    adapters: AdapterSet | None = None,
) -> Prewarmed:
    """`read` is called on a worker thread: a request's messages may be long.

    Without `adapters`, those of requests that name none.
    """
    used = host.adapters.asked(None) if adapters is None else adapters

    def make() -> tuple[Conversation, Prompt]:
        conversation = read()
        return conversation, _prompt(host, conversation).adapted(used)

    conversation, prompt = await aside(host, make, request)
    job = ReplyJob(prompt, Sampling(), max_tokens=0, namespace=conversation.namespace, caller=PREWARM)
    with Replies(host, [job], f"prewarm-{uuid.uuid4().hex}") as replies:
        (reply,) = await replies.collect()
    known = host.cache.known_as(prompt)
    kept = known.tokens[: host.cache.kept_length(known)]
    nbytes = await host.between_steps(lambda: host.cache.pin(kept, job.namespace)) if kept.size else 0
    if kept.size and not nbytes:
        budget = host.cache.ram.budget.budget_bytes // MIB
        raise ApiError(507, f"{kept.size} tokens do not fit into {budget} MiB: give --ram more", code="no_room")
    return Prewarmed(_first_words(conversation), kept.size, reply.report.computed, nbytes)


def prewarm_at_start(host: ModelHost) -> list[NamedPrewarmed]:
    """Prewarm what the settings name, before the server listens."""
    names = host.settings.prewarm
    files = [(name, read_header(Path(name))) for name in names if name != LAST]

    async def read_all() -> list[NamedPrewarmed]:
        read = [NamedPrewarmed(name, await read_one(name, file)) for name, file in files]
        if LAST not in names:
            return read
        last = await _prewarm_last(host, last_headers(host.headers))
        for reason in last.failed:
            logger.warning("a header that was used last is not prewarmed: %s", reason)
        return [*read, *(NamedPrewarmed(LAST, prewarmed) for prewarmed in last.headers)]

    async def read_one(name: str, file: HeaderFile) -> Prewarmed:
        try:
            return await prewarm(host, file.conversation)
        except (ApiError, TemplateError) as error:
            raise SettingError(f"--prewarm {name}: {error}") from error

    return asyncio.run(read_all())


async def _prewarm_last(
    host: ModelHost, files: Sequence[HeaderFile], adapters: AdapterSet | None = None
) -> PrewarmedLast:
    """One that another model's template or context cannot take does not keep the others from being read."""
    done = PrewarmedLast([], [])
    for file in files[:_MAX_LAST]:
        try:
            done.headers.append(await prewarm(host, file.conversation, adapters=adapters))
        except (ApiError, TemplateError) as error:
            done.failed.append(str(error))
    return done


def _first_words(conversation: Conversation) -> str:
    texts = (message.get("content") for message in conversation.messages)
    return shorten(next((text for text in texts if isinstance(text, str)), ""), _NUM_SHOWN, placeholder="…")


def _prompt(host: ModelHost, conversation: Conversation) -> Prompt:
    """The prompt of a conversation, without a generation prompt.

    Most templates need a user message: a header alone gets one, which is cut off again.
    """
    messages = conversation.messages
    is_header = all(message["role"] in HEADER_ROLES for message in messages)
    shown = [*messages, _ANY_USER_MESSAGE] if is_header else messages
    whole = host.chats.prompt(replace(conversation, messages=shown, add_generation_prompt=False)).prompt
    if not is_header or not whole.header_end:
        return whole
    return Prompt(whole.tokens[: whole.header_end], whole.messages[: len(messages)])
