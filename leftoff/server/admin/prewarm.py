"""Prewarming: compute the common beginning of conversations ahead of the first one, and pin it in the cache."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from leftoff.chat.conversation import Conversation
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.config import MIB
from leftoff.sampling import Sampling
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.response import Replies, json_response
from leftoff.server.request.fields import ChatFields
from leftoff.server.request.job import ReplyJob
from leftoff.server.service import Service
from leftoff.server.tenant import namespace_of
from leftoff.setting import SettingError
from leftoff.types import HEADER_ROLES, Prompt

_ANY_USER_MESSAGE = {"role": "user", "content": "."}


class Prewarmed(Struct):
    """A pinned prefix: its tokens, how many of them were computed now, and its size."""

    tokens: int
    computed: int
    bytes: int


class PrewarmFile(Struct):
    """The contents of a JSON file for --prewarm."""

    messages: list[MessageDict]
    tools: list[dict[str, Any]] | None = None


class PrewarmApi(Dialect):
    """Prewarming by request."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        summary = "Compute messages ahead of the first conversation, and pin them"
        return [Endpoint("POST", "/cache/prewarm", summary, self.prewarm, ChatFields)]

    async def prewarm(self, request: Request) -> Response:
        body = await read_body(request, ChatFields)
        namespace = namespace_of(request, body.cache_salt)
        read = partial(body.conversation, namespace, shows_all_tools=True)
        return json_response(await prewarm(self._service, read, request))


async def prewarm(service: Service, read: Callable[[], Conversation], request: Request | None = None) -> Prewarmed:
    """`read` is called on a worker thread: a request's messages may be long."""

    def make() -> tuple[Prompt, str]:
        conversation = read()
        return _prompt(service, conversation), conversation.namespace

    prompt, namespace = await service.aside(make, request)
    job = ReplyJob(prompt, Sampling(), max_tokens=0, namespace=namespace)
    with Replies(service, [job], f"prewarm-{uuid.uuid4().hex}") as replies:
        (reply,) = await replies.collect()
    nbytes = await service.between_steps(lambda: service.cache.pin(prompt.tokens, namespace))
    if not nbytes:
        budget = service.cache.ram.budget.budget_bytes // MIB
        raise ApiError(507, f"{prompt.length} tokens do not fit into {budget} MiB: give --ram more", code="no_room")
    assert reply.end.report is not None
    return Prewarmed(prompt.length, reply.end.report.computed, nbytes)


def prewarm_files(service: Service) -> list[Prewarmed]:
    """Prewarm the files of the settings, before the server listens."""

    async def read_all() -> list[Prewarmed]:
        files = [(name, _read_file(Path(name))) for name in service.settings.prewarm]
        return [await read(name, file) for name, file in files]

    async def read(name: str, file: PrewarmFile) -> Prewarmed:
        try:
            return await prewarm(service, lambda: Conversation(file.messages, file.tools))
        except (ApiError, TemplateError) as error:
            raise SettingError(f"--prewarm {name}: {error}") from error

    return asyncio.run(read_all())


def _prompt(service: Service, conversation: Conversation) -> Prompt:
    """Without a generation prompt. Most templates need a user message: a header alone gets one, cut off again."""
    messages = conversation.messages
    is_header = all(message["role"] in HEADER_ROLES for message in messages)
    shown = [*messages, _ANY_USER_MESSAGE] if is_header else messages
    whole = service.chat(replace(conversation, messages=shown, add_generation_prompt=False)).prompt
    if not is_header or not whole.header_end:
        return whole
    return replace(whole, tokens=whole.tokens[: whole.header_end], messages=whole.messages[: len(messages)], breaks=())


def _read_file(path: Path) -> PrewarmFile:
    """A `.json` file has messages; any other is the text of a system prompt."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--prewarm {path}: it cannot be read ({error})") from error
    if path.suffix != ".json":
        return PrewarmFile([{"role": "system", "content": text}])
    try:
        file = msgspec.json.decode(text, type=PrewarmFile)
    except msgspec.MsgspecError as error:
        raise SettingError(f'--prewarm {path}: {error}; it must look like {{"messages": [...]}}') from error
    if not all(isinstance(message.get("role"), str) for message in file.messages):
        raise SettingError(f'--prewarm {path}: a message has no role: write {{"role": "system", "content": "..."}}')
    return file
