"""A client that talks to a real server in texts, and what it measures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from leftoff.client import ChatClient
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.server.server import serving
from leftoff.types import Tokens
from tests.factory import Scale, model_path, small_vocabulary
from tests.patience import PATIENCE_S

MessageDict = dict[str, Any]
ToolDict = dict[str, Any]


class Texts:
    """Makes up texts of whole words: as many tokens as words, and the same tokens wherever they stand."""

    def __init__(self, seed: int) -> None:
        vocabulary = small_vocabulary()
        self._words = [vocabulary.tokens[word].replace("Ġ", " ") for word in vocabulary.words]
        self._rng = np.random.default_rng(seed)

    def text(self, shortest: int, longest: int | None = None) -> str:
        return "".join(self._rng.choice(self._words, self.length(shortest, longest)))

    def length(self, shortest: int, longest: int | None = None) -> int:
        return int(self._rng.integers(shortest, (longest or shortest) + 1))


@dataclass(frozen=True)
class Answer:
    """A reply, and what was read for it. `top` has the log-probabilities of the likeliest tokens at each place."""

    text: str
    prompt_tokens: int
    reply_tokens: int
    cached: int
    computed: int
    prompt_ms: float
    tokens: tuple[int, ...] = ()
    top: tuple[dict[int, float], ...] = ()


@dataclass(frozen=True)
class Streamed:
    """A reply that came word by word, and what was read for it."""

    text: str
    prompt_tokens: int
    computed: int


class Wire:
    """Asks for greedy replies of a given length."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def chat(
        self,
        messages: Sequence[MessageDict],
        max_tokens: int,
        tools: Sequence[ToolDict] | None = None,
        num_top: int = 0,
    ) -> Answer:
        body: dict[str, Any] = {"messages": messages, "tools": tools, "max_tokens": max_tokens, "temperature": 0}
        if num_top:
            body |= {"logprobs": True, "top_logprobs": num_top}
        reply = self.post("/v1/chat/completions", body)
        usage, timings, (choice,) = reply["usage"], reply["timings"], reply["choices"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert (timings["cache_n"], timings["cache_n"] + timings["prompt_n"]) == (cached, usage["prompt_tokens"])
        places = choice["logprobs"]["content"] if num_top else []
        return Answer(
            text=choice["message"]["content"],
            prompt_tokens=usage["prompt_tokens"],
            reply_tokens=usage["completion_tokens"],
            cached=cached,
            computed=timings["prompt_n"],
            prompt_ms=timings["prompt_ms"],
            tokens=tuple(place["id"] for place in places),
            top=top_logprobs(places),
        )

    def stream(self, messages: Sequence[MessageDict], max_tokens: int) -> Streamed:
        """A reply as it comes."""
        reply = ChatClient(self.http).ask({"messages": messages, "max_tokens": max_tokens, "temperature": 0})
        computed = reply.timings["prompt_n"]
        return Streamed(reply.text, reply.timings["cache_n"] + computed, computed)

    def complete(self, tokens: Sequence[int], max_tokens: int, num_top: int) -> Answer:
        body = {"prompt": list(tokens), "n_predict": max_tokens, "temperature": 0, "n_probs": num_top}
        reply = self.post("/completion", body | {"return_tokens": True})
        return Answer(
            text=reply["content"],
            prompt_tokens=reply["tokens_evaluated"],
            reply_tokens=reply["tokens_predicted"],
            cached=reply["tokens_cached"],
            computed=reply["timings"]["prompt_n"],
            prompt_ms=reply["timings"]["prompt_ms"],
            tokens=tuple(reply["tokens"]),
            top=top_logprobs(reply["completion_probabilities"]),
        )

    def prompt(
        self, messages: Sequence[MessageDict], tools: Sequence[ToolDict] | None = None, generation: bool = True
    ) -> Tokens:
        """A chat as the model reads it."""
        body = {"messages": messages, "tools": tools, "add_generation_prompt": generation}
        return self.tokens(self.post("/apply-template", body)["prompt"])

    def tokens(self, text: str) -> Tokens:
        return np.array(self.post("/tokenize", {"content": text})["tokens"], np.int32)

    @property
    def memory(self) -> str:
        """The kind of memory that the model has."""
        return str(self.http.get("/cache").json()["memory"])

    def forget(self) -> None:
        assert self.http.delete("/cache").status_code == 200

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
        reply = self.http.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()


@contextmanager
def wired(architecture: str, scale: Scale | None = None, **changes: Any) -> Iterator[Wire]:  # noqa: ANN401
    """A server of its own on a free port, and a client in front of it."""
    scale = scale or Scale(context_length=1 << 14)
    values: dict[str, Any] = {"ctx": scale.context_length, "threads": 1, "ram": 1024, "disk": 0, "draft": "off"}
    values |= changes
    with (
        open_host(Settings(model=str(model_path(architecture, scale)), **values)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
    ):
        yield Wire(http)


def says(role: str, content: str) -> MessageDict:
    return {"role": role, "content": content}


def top_logprobs(places: Sequence[dict[str, Any]]) -> tuple[dict[int, float], ...]:
    """For each token of a reply, the log-probabilities of the likeliest ones by their ids."""
    return tuple({rival["id"]: rival["logprob"] for rival in place["top_logprobs"]} for place in places)
