"""Asks a server over HTTP, in OpenAI's words, and measures at the client.

What beyond them is sent or read is llama-server's, which leftoff and others speak too: whether to think, and `timings`.
"""

import re
from dataclasses import dataclass

import httpx

from lab.bench.ask import Ask, Call, Reply
from lab.bench.errors import BenchError
from leftoff.client import ChatClient, ClientError, RefusedError, StreamedReply, UnreachableError, connect

_TIMEOUT = httpx.Timeout(600)
_IDLE = re.compile(r"^leftoff_read_ahead_tokens_total (\S+)", re.MULTILINE)
_REFUSALS = ("exceed_context_size_error", "context_length_exceeded")


@dataclass(frozen=True)
class Answer:
    """A reply, and what it took. `computed` and `cached` are as the server reports them."""

    reply: Reply
    prompt_tokens: int = 0
    cached: int = 0
    computed: int = 0
    generated: int = 0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    is_cut_off: bool = False  # it ended because it was long enough


class Client:
    """One server."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self.url = url
        # llama-server closes idle connections after seconds, just when the next request may be on its way
        self.http = connect(url, api_key, timeout=_TIMEOUT, keeps_alive=False)
        self._chat = ChatClient(self.http)
        self._model = self._find_model()

    def close(self) -> None:
        self.http.close()

    def ask(self, ask: Ask) -> Answer:
        body = {
            "model": self._model,
            "messages": [*ask.messages],
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": ask.thinks},
        }
        if ask.tools:
            body["tools"] = [*ask.tools]
        try:
            return _answer(self._chat.ask(body))
        except RefusedError as error:
            if any(code in error.body for code in _REFUSALS):
                return Answer(Reply(is_refused=True))
            raise BenchError(str(error)) from error
        except UnreachableError as error:
            raise BenchError(f"{self.url} stopped answering ({error.__cause__}): look at what it logged") from error

    def forget(self) -> None:
        """Has leftoff forget everything; no other server can be told to."""
        self.http.delete("/cache").raise_for_status()

    def idle_tokens(self) -> int:
        """Prompt tokens that were read while nobody asked, as far as the server says: no request reports them."""
        reply = self.http.get("/metrics")
        match = _IDLE.search(reply.text) if reply.status_code == httpx.codes.OK else None
        return int(float(match[1])) if match else 0

    def _find_model(self) -> str:
        try:
            models = self._chat.models()
        except ClientError as error:
            raise BenchError(
                f"{self.url} does not list its models ({error}): give the address of an OpenAI-compatible server, "
                "without /v1, and --api-key if it wants one"
            ) from error
        return models[0] if models else ""


def _answer(heard: StreamedReply) -> Answer:
    prompt_tokens, cached = heard.prompt_tokens or 0, heard.cached_tokens or 0
    calls = tuple(Call(call.id, call.name, call.arguments) for call in heard.calls.values())
    return Answer(
        Reply(heard.text, heard.reasoning, calls),
        prompt_tokens=prompt_tokens,
        cached=cached,
        computed=int(heard.timings.get("prompt_n", prompt_tokens - cached)),
        generated=int(heard.usage.get("completion_tokens", 0)),
        first_token_ms=heard.first_token_ms,
        total_ms=heard.total_ms,
        is_cut_off=heard.finish == "length",
    )
