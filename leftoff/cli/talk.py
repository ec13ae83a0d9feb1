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
from leftoff.client import ChatClient, ClientError, StreamedReply, connect
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
from leftoff.setting import SettingError
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
    """A reply and its cost. The token counts are None if the server does not report them, or the reply was stopped."""

    text: str
    first_token_ms: float
    prompt_tokens: int | None = None
    reused: int | None = None
    is_stopped: bool = False

    def line(self) -> str:
        if self.is_stopped:
            return "stopped: the next question goes on from here; /retry asks again"
        if self.prompt_tokens is None or self.reused is None:
            return f"first token after {show_ms(self.first_token_ms)}"
        computed = self.prompt_tokens - self.reused
        return f"reused {self.reused:,} · computed {computed:,} · first token after {show_ms(self.first_token_ms)}"


class Talker(Protocol):
    """Something to chat with. It answers one turn at a time and passes the reply to `show` piece by piece.

    Ctrl-C ends a reply, which is what was said until then; before the first word it is a `KeyboardInterrupt`.
    """

    @property
    def name(self) -> str: ...
    @property
    def sees_pictures(self) -> bool: ...
    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply: ...
    def close(self) -> None: ...


class LocalModel:
    """A model in this process. It stays usable when a reply is stopped."""

    def __init__(self, host: ModelHost, options: ReplyOptions) -> None:
        self._host = host
        self._options = options
        self._runner = asyncio.Runner()

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def sees_pictures(self) -> bool:
        return self._host.prompts.sees_pictures

    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        try:
            return self._runner.run(self._ask(messages, show))
        except (ApiError, EngineError, HostClosedError, TemplateError, PictureError) as error:
            raise TalkError(str(error)) from error

    def close(self) -> None:
        self._runner.close()
        self._host.close()

    async def _ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        pictures = self._host.pictures if self.sees_pictures else None
        chat = await aside(self._host, lambda: self._host.chats.prompt(Conversation.with_files(messages, pictures)))
        job = ReplyJob(
            chat.prompt, self._options.sampling(self._host.default_sampling), max_tokens=self._options.max_tokens
        )
        said = ""
        try:
            with Replies(self._host, [job], uuid.uuid4().hex) as replies:
                async for batch in replies.batches():
                    for _, event in batch:
                        if isinstance(event, Piece | End):
                            said += event.text
                            show(event.text)
        except asyncio.CancelledError:  # by Ctrl-C
            if not said.strip():
                raise
            return TimedReply(said, 0.0, is_stopped=True)
        return _local_turn(replies.streams[0])


class RemoteModel:
    """The first model of a server at a URL."""

    def __init__(self, url: str, options: ReplyOptions, api_key: str = "") -> None:
        self._options = options
        self._http = connect(url, api_key, timeout=_TIMEOUT)
        self._client = ChatClient(self._http)
        models = self._client.listed()
        if not models:
            raise TalkError(f"{url} has no model: /v1/models lists none")
        self.name = models[0].name
        self.sees_pictures = models[0].sees is not False  # another server may not say it

    def close(self) -> None:
        self._http.close()

    def ask(self, messages: Sequence[MessageDict], show: Show) -> TimedReply:
        options = {"temperature": self._options.temperature, "max_tokens": self._options.max_tokens}
        given = {name: value for name, value in options.items() if value is not None}
        reply = StreamedReply()
        try:
            sent = [*map(_with_data, messages)]
            self._client.ask({"model": self.name, "messages": sent, **given}, show, reply)
        except (ClientError, OSError) as error:
            raise TalkError(str(error)) from error
        except KeyboardInterrupt:
            if not reply.text.strip():
                raise
            return TimedReply(reply.text, reply.first_token_ms, is_stopped=True)
        return TimedReply(reply.text, reply.first_token_ms, reply.prompt_tokens, reply.cached_tokens)


def _with_data(message: MessageDict) -> MessageDict:
    """The message with its pictures as data URLs, in place of the paths that name them."""
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


def server_url(text: str, option: str = "--url") -> str:
    """The address that an option names."""
    url = as_url(text)
    if url is None:
        raise SettingError(f"{option} {text!r} is no address: give one such as http://127.0.0.1:8080")
    return url


def _local_turn(reply: ReplyStream) -> TimedReply:
    if (failure := reply.end.failure) is not None:
        raise TalkError(f"the reply failed: {failure}")
    waited = reply.timings.waited_ms + reply.timings.prompt_ms
    return TimedReply(reply.text, waited, reply.report.prompt_tokens, reply.report.reused)
