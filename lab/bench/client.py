"""Asks a server over HTTP, in OpenAI's words, and measures at the client.

What beyond them is sent or read is llama-server's, which leftoff and others speak too: whether to think, and `timings`.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from lab.bench.ask import Ask, Call, Reply
from lab.bench.errors import BenchError

_TIMEOUT_S = 600
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
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # llama-server closes idle connections after seconds, just when the next request may be on its way
        limits = httpx.Limits(max_keepalive_connections=0)
        self.url = url
        self.http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, limits=limits)
        self._model = self._find_model()

    def close(self) -> None:
        self.http.close()

    def ask(self, ask: Ask) -> Answer:
        body = {
            "model": self._model,
            "messages": [*ask.messages],
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": ask.thinks},
        }
        if ask.tools:
            body["tools"] = [*ask.tools]
        try:
            return self._hear(body)
        except httpx.TransportError as error:
            raise BenchError(f"{self.url} stopped answering ({error}): look at what it logged") from error

    def forget(self) -> None:
        """Only leftoff can be told to."""
        self.http.delete("/cache").raise_for_status()

    def idle_tokens(self) -> int:
        """Prompt tokens that were read while nobody asked, as far as the server says: no request reports them."""
        reply = self.http.get("/metrics")
        match = _IDLE.search(reply.text) if reply.status_code == httpx.codes.OK else None
        return int(float(match[1])) if match else 0

    def _hear(self, body: dict[str, Any]) -> Answer:
        heard = _Heard(time.perf_counter())
        with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                return self._refusal(response)
            for chunk in _chunks(response):
                heard.hear(chunk)
        return heard.answer()

    def _find_model(self) -> str:
        try:
            models = self.http.get("/v1/models").raise_for_status().json()["data"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise BenchError(
                f"{self.url} does not list its models ({error}): give the address of an OpenAI-compatible server, "
                "without /v1, and --api-key if it wants one"
            ) from error
        return str(models[0]["id"]) if models else ""

    def _refusal(self, response: httpx.Response) -> Answer:
        text = response.read().decode("utf-8", "replace")
        if any(code in text for code in _REFUSALS):
            return Answer(Reply(is_refused=True))
        raise BenchError(f"{self.url} answered {response.status_code}: {text[:500]}")


@dataclass
class _Heard:
    """A reply so far."""

    began: float
    first: float = 0.0
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)

    def hear(self, chunk: dict[str, Any]) -> None:
        self.usage = chunk.get("usage") or self.usage
        self.timings = chunk.get("timings") or self.timings
        for choice in chunk.get("choices", ()):
            said = self._hear_delta(choice.get("delta") or {})
            self.finish = choice.get("finish_reason") or self.finish
            if (said or self.finish) and not self.first:
                self.first = time.perf_counter()

    def answer(self) -> Answer:
        now = time.perf_counter()
        prompt_tokens = int(self.usage.get("prompt_tokens", 0))
        cached = int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        return Answer(
            Reply("".join(self.content), "".join(self.reasoning), tuple(Call(*parts) for parts in self.calls.values())),
            prompt_tokens=prompt_tokens,
            cached=cached,
            computed=int(self.timings.get("prompt_n", prompt_tokens - cached)),
            generated=int(self.usage.get("completion_tokens", 0)),
            first_token_ms=1000 * ((self.first or now) - self.began),
            total_ms=1000 * (now - self.began),
            is_cut_off=self.finish == "length",
        )

    def _hear_delta(self, delta: dict[str, Any]) -> bool:
        content, reasoning, calls = (delta.get(key) for key in ("content", "reasoning_content", "tool_calls"))
        self.content += [content] if content else []
        self.reasoning += [reasoning] if reasoning else []
        for call in calls or ():
            parts, function = self.calls.setdefault(call["index"], ["", "", ""]), call.get("function") or {}
            for place, text in enumerate((call.get("id"), function.get("name"), function.get("arguments"))):
                parts[place] += text or ""
        return bool(content or reasoning or calls)


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
