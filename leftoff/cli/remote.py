"""A server at a URL, for `leftoff chat`: leftoff, or any other that speaks OpenAI's Chat Completions."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from leftoff.cli.conversation import Message
from leftoff.cli.talk import Show, TalkError, Turn, Wishes

_URL = re.compile(r"(https?://)?([\w.-]+|\[[0-9a-fA-F:]+\])(:\d+)?(/.*)?")
_CONNECT_S = 10.0


class Server:
    """A server at a URL, leftoff or another."""

    def __init__(self, url: str, wishes: Wishes, api_key: str = "") -> None:
        self._wishes = wishes
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(None, connect=_CONNECT_S)  # a reply takes as long as it takes
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._url = url
        self.name = self._first_model()

    def close(self) -> None:
        self._client.close()

    def ask(self, messages: Sequence[Message], show: Show) -> Turn:
        reply = _Arriving(show)
        with self._answers("POST", "/v1/chat/completions", self._body(messages)) as response:
            for chunk in _chunks(response.iter_lines()):
                reply.take(chunk)
        return reply.turn()

    def _body(self, messages: Sequence[Message]) -> dict[str, Any]:
        wishes = {"temperature": self._wishes.temperature, "max_tokens": self._wishes.max_tokens}
        body = {"model": self.name, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        return body | {name: value for name, value in wishes.items() if value is not None}

    def _first_model(self) -> str:
        with self._answers("GET", "/v1/models") as response:
            try:
                return str(json.loads(response.read())["data"][0]["id"])
            except (ValueError, LookupError, TypeError) as error:
                raise TalkError(f"{self._url} is not a server of OpenAI's kind: /v1/models lists no model") from error

    @contextmanager
    def _answers(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Iterator[httpx.Response]:
        try:
            with self._client.stream(method, path, json=body) as response:
                if response.is_error:
                    raise TalkError(f"{self._url}{path} answered {response.status_code}: {_reason(response)}")
                yield response
        except httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
            raise TalkError(f"{self._url} does not answer ({problem}): is `leftoff serve` running there?") from error


@dataclass
class _Arriving:
    """A reply in chunks."""

    show: Show
    asked: float = field(default_factory=time.perf_counter)
    first: float | None = None
    pieces: list[str] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)

    def take(self, chunk: Mapping[str, Any]) -> None:
        if "error" in chunk:
            raise TalkError(f"the reply failed: {_error_text(chunk)}")
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            content = delta.get("content") or ""
            self._arrived((delta.get("reasoning_content") or "") + content)
            self.pieces.append(content)

    def turn(self) -> Turn:
        first = time.perf_counter() if self.first is None else self.first
        details = self.usage.get("prompt_tokens_details") or {}
        return Turn(
            "".join(self.pieces),
            1000 * (first - self.asked),
            self.usage.get("prompt_tokens"),
            details.get("cached_tokens"),
        )

    def _arrived(self, text: str) -> None:
        if text and self.first is None:
            self.first = time.perf_counter()
        self.show(text)


def as_url(text: str) -> str | None:
    """The address of a server, without `/v1`; None if the text names a model."""
    match = _URL.fullmatch(text)
    if match is None or not (match[1] or match[3]):
        return None
    return f"{match[1] or 'http://'}{match[2]}{match[3] or ''}{(match[4] or '').rstrip('/').removesuffix('/v1')}"


def _chunks(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        if data:
            yield json.loads(data)


def _reason(response: httpx.Response) -> str:
    text = response.read().decode("utf-8", "replace")
    try:
        return _error_text(json.loads(text))
    except ValueError:
        return text.strip()[:200] or response.reason_phrase


def _error_text(body: Any) -> str:  # noqa: ANN401
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)
