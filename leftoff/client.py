"""A streaming client for OpenAI's Chat Completions: leftoff's own server, or any other that speaks it.

It also reads `timings` and `reasoning_content`, which llama-server adds to OpenAI's format.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from leftoff import __version__
from leftoff.errors import LeftoffError, reason_of

_PATH = "/v1/chat/completions"
_SHOWN_CHARACTERS = 500  # of an answer that is not JSON
_WAY_OUT = "give the address that `leftoff serve` prints"


class ClientError(LeftoffError):
    """A request that failed. The message says why."""


class UnreachableError(ClientError):
    """The connection could not be made, or broke."""


class RefusedError(ClientError):
    """The server answered with an error status. `body` is what it said, as it came."""

    def __init__(self, place: str, status: int, body: str) -> None:
        reason = _reason(body)
        if status == httpx.codes.UNAUTHORIZED:  # a server says how programs give a key
            reason = f"{reason.partition(':')[0]}: give one with --api-key, or as LEFTOFF_API_KEY"
        super().__init__(f"{place} answered {status}: {reason}")
        self.body = body


@dataclass
class StreamedCall:
    """A tool call, put together from its pieces."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class StreamedReply:
    """A reply as far as it has arrived, with the times since it was asked for."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, StreamedCall] = field(default_factory=dict)
    finish: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    @property
    def prompt_tokens(self) -> int | None:
        return self.usage.get("prompt_tokens")

    @property
    def cached_tokens(self) -> int | None:
        return (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens")

    def take(self, chunk: Mapping[str, Any]) -> str:
        """Adds one chunk of the stream; returns its text and reasoning, to be shown."""
        if "error" in chunk:
            raise ClientError(f"the reply failed: {_error_text(chunk)}")
        self.usage = chunk.get("usage") or self.usage
        self.timings = chunk.get("timings") or self.timings
        self.total_ms = 1000 * (time.perf_counter() - self._began)
        return "".join([self._take_choice(choice) for choice in chunk.get("choices") or ()])

    def end(self) -> None:
        """The stream has ended."""
        self.total_ms = 1000 * (time.perf_counter() - self._began)
        self.first_token_ms = self.first_token_ms or self.total_ms

    def _take_choice(self, choice: Mapping[str, Any]) -> str:
        delta = choice.get("delta") or {}
        text, reasoning = str(delta.get("content") or ""), str(delta.get("reasoning_content") or "")
        calls = delta.get("tool_calls") or ()
        self.text += text
        self.reasoning += reasoning
        for piece in calls:
            self._take_call(piece)
        self.finish = choice.get("finish_reason") or self.finish
        if text or reasoning or calls or self.finish:
            self.first_token_ms = self.first_token_ms or self.total_ms
        return reasoning + text

    def _take_call(self, piece: Mapping[str, Any]) -> None:
        call, function = self.calls.setdefault(piece["index"], StreamedCall()), piece.get("function") or {}
        call.id += piece.get("id") or ""
        call.name += function.get("name") or ""
        call.arguments += function.get("arguments") or ""


@dataclass(frozen=True)
class ListedModel:
    """A model of a server, by its name. `sees` is None where the server does not say whether it takes pictures."""

    name: str
    sees: bool | None = None


class ChatClient:
    """Streams chat completions over an HTTP client whose base URL is the server's, without `/v1`."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.url = str(http.base_url).rstrip("/")

    def models(self) -> list[str]:
        return [model.name for model in self.listed()]

    def listed(self) -> list[ListedModel]:
        with self._response("GET", "/v1/models") as response:
            try:
                return [_listed(model) for model in json.loads(response.read())["data"]]
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise ClientError(f"{self.url} is not a server of OpenAI's kind: /v1/models lists no model") from error

    def ask(
        self, body: Mapping[str, Any], show: Callable[[str], None] | None = None, reply: StreamedReply | None = None
    ) -> StreamedReply:
        """Sends a request and reads its whole reply. `show` gets text and reasoning piece by piece.

        A caller who may be interrupted gives the `reply` to fill, to have what came until then.
        """
        reply = reply or StreamedReply()
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with self._response("POST", _PATH, streamed) as response:
            for chunk in read_chunks(response.iter_lines()):
                text = reply.take(chunk)
                if show is not None:
                    show(text)
        reply.end()
        return reply

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request to a route of leftoff's own, and reads its answer, which is an object."""
        with self._response(method, path, body) as response, suppress(ValueError):
            answer = json.loads(response.read())
            if isinstance(answer, dict):
                return answer
        raise ClientError(
            f"{self.url} is no server of leftoff's: {method} {path} is not answered with an object: {_WAY_OUT}"
        )

    @contextmanager
    def _response(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, path, json=body) as response:
                if response.headers.get("content-type", "").startswith("text/html") and not response.is_server_error:
                    raise ClientError(f"{self.url} answers with a web page, and is no server of leftoff's: {_WAY_OUT}")
                if response.is_error:
                    text = response.read().decode("utf-8", "replace")
                    raise RefusedError(f"{self.url}{path}", response.status_code, text or response.reason_phrase)
                yield response
        except (httpx.HTTPError, UnicodeError) as error:  # the second: of a host that can be no name
            problem = f"{self.url} does not answer ({reason_of(error)})"
            raise UnreachableError(f"{problem}: is `leftoff serve` running there?") from error


def connect(url: str, api_key: str = "", *, timeout: httpx.Timeout, keeps_alive: bool = True) -> httpx.Client:
    """An HTTP client for one server."""
    headers = {"User-Agent": f"leftoff/{__version__}"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    limits = httpx.Limits() if keeps_alive else httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=url, headers=headers, timeout=timeout, limits=limits)


def read_chunks(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to `[DONE]`. Raises `ClientError` for what is none."""
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        if data:
            yield _chunk(data)


def _chunk(data: str) -> dict[str, Any]:
    with suppress(ValueError):
        chunk = json.loads(data)
        if isinstance(chunk, dict):
            return chunk
    raise ClientError(f"an event of the stream is no JSON object: {data[:_SHOWN_CHARACTERS]}")


def _listed(model: Mapping[str, Any]) -> ListedModel:
    return ListedModel(str(model["id"]), (model.get("meta") or {}).get("vision"))


def _reason(body: str) -> str:
    try:
        return _error_text(json.loads(body))
    except ValueError:
        return body.strip()[:_SHOWN_CHARACTERS]


def _error_text(body: Any) -> str:  # noqa: ANN401
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)
