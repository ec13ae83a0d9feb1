"""The two models that `leftoff chat` can talk to: one in this process, and one of a server at a URL."""

import asyncio
import base64
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import httpx

from leftoff.chat.conversation import Conversation
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.client import ChatClient, ClientError, connect
from leftoff.engine.errors import EngineError
from leftoff.errors import LeftoffError
from leftoff.host.host import HostClosedError, ModelHost
from leftoff.picture import PictureError
from leftoff.sampling import Sampling
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.response import Replies
from leftoff.server.reply.stream import End, Piece, ReplyStream
from leftoff.server.request.aside import aside
from leftoff.server.request.job import ReplyJob
from leftoff.units import show_ms

Show = Callable[[str], None]

_URL = re.compile(r"(https?://)?([\w.-]+|\[[0-9a-fA-F:]+\])(:\d+)?(/.*)?")
_TIMEOUT = httpx.Timeout(None, connect=10.0)  # a reply may take any time


class TalkError(LeftoffError):
    """A turn that failed. The message says why and what to do."""


@dataclass(frozen=True)
class ReplyOptions:
    """The options of a reply. None means the model's or the server's default."""

    temperature: float | None = None
    max_tokens: int | None = None

    def sampling(self, defaults: Sampling) -> Sampling:
        return defaults if self.temperature is None else replace(defaults, temperature=self.temperature)


@dataclass(frozen=True)
class TimedReply:
    """A reply and its cost. The token counts are None if the server does not report them."""

    text: str
    first_token_ms: float
    prompt_tokens: int | None = None
    reused: int | None = None

    def line(self) -> str:
        if self.prompt_tokens is None or self.reused is None:
            return f"first token after {show_ms(self.first_token_ms)}"
        computed = self.prompt_tokens - self.reused
        return f"reused {self.reused:,} · computed {computed:,} · first token after {show_ms(self.first_token_ms)}"


class Talker(Protocol):
    """Something to chat with. It answers one turn at a time and passes the reply to `show` piece by piece."""

    @property
    def name(self) -> str: ...
    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply: ...
    def close(self) -> None: ...


class LocalModel:
    """A model in this process. Ctrl-C ends a reply; the model stays usable."""

    def __init__(self, host: ModelHost, options: ReplyOptions) -> None:
        self._host = host
        self._options = options
        self._runner = asyncio.Runner()

    @property
    def name(self) -> str:
        return self._host.name

    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        try:
            return self._runner.run(self._ask(messages, show))
        except (ApiError, EngineError, HostClosedError, TemplateError, PictureError) as error:
            raise TalkError(str(error)) from error

    def close(self) -> None:
        self._runner.close()
        self._host.close()

    async def _ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        pictures = self._host.pictures if self._host.prompts.sees_pictures else None
        chat = await aside(self._host, lambda: self._host.chats.prompt(Conversation.with_files(messages, pictures)))
        job = ReplyJob(
            chat.prompt, self._options.sampling(self._host.default_sampling), max_tokens=self._options.max_tokens
        )
        with Replies(self._host, [job], uuid.uuid4().hex) as replies:
            async for batch in replies.batches():
                for _, event in batch:
                    if isinstance(event, Piece | End):
                        show(event.text)
        return _local_turn(replies.streams[0])


class RemoteModel:
    """The first model of a server at a URL."""

    def __init__(self, url: str, options: ReplyOptions, api_key: str = "") -> None:
        self._options = options
        self._http = connect(url, api_key, timeout=_TIMEOUT)
        self._client = ChatClient(self._http)
        names = self._client.models()
        if not names:
            raise TalkError(f"{url} has no model: /v1/models lists none")
        self.name = names[0]

    def close(self) -> None:
        self._http.close()

    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        options = {"temperature": self._options.temperature, "max_tokens": self._options.max_tokens}
        given = {name: value for name, value in options.items() if value is not None}
        try:
            sent = [*map(_with_data, messages)]
            reply = self._client.ask({"model": self.name, "messages": sent, **given}, show)
        except (ClientError, OSError) as error:
            raise TalkError(str(error)) from error
        return TimedReply(reply.text, reply.first_token_ms, reply.prompt_tokens, reply.cached_tokens)


def _with_data(message: MessageDict) -> MessageDict:
    """With its pictures, which are named by their paths, as a server wants them."""
    content = message["content"]
    return message if isinstance(content, str) else {**message, "content": [*map(_part_with_data, content)]}


def _part_with_data(part: MessageDict) -> MessageDict:
    if "path" not in part:
        return part
    data = base64.b64encode(Path(part["path"]).expanduser().read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/*;base64,{data}"}}


def as_url(text: str) -> str | None:
    """The address of a server, without `/v1`; None if the text names a model."""
    match = _URL.fullmatch(text)
    if match is None or not (match[1] or match[3]):
        return None
    return f"{match[1] or 'http://'}{match[2]}{match[3] or ''}{(match[4] or '').rstrip('/').removesuffix('/v1')}"


def _local_turn(reply: ReplyStream) -> TimedReply:
    if reply.end.error is not None or reply.report is None:
        raise TalkError(f"the reply failed: {reply.end.error or reply.end.finish.value}")
    waited = reply.timings.waited_ms + reply.timings.prompt_ms
    return TimedReply(reply.text, waited, reply.report.prompt_tokens, reply.report.reused)
