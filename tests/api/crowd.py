"""People who talk to one server: their conversations grow, are edited, begin anew, and are left in the middle."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from tests.api.wire import Answer, MessageDict, Texts, says

_MOST_MESSAGES = 16
_REPLY_TOKENS = 12
_NEW, _EDIT, _LEAVE = 0.1, 0.15, 0.2  # how often


@dataclass(frozen=True)
class Told:
    """What was sent and what came back: all of it, or as much as had come when one side was gone."""

    messages: list[MessageDict]
    answer: Answer
    is_left: bool = False  # by the client
    is_cut: bool = False  # by the server


class Talker:
    """Has some conversations, and goes on with one at a time. All of them begin with the same header."""

    def __init__(self, seed: int, header: str, num_conversations: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._texts = Texts(seed)
        self._header = says("system", header)
        self._talks = [[self._header] for _ in range(num_conversations)]
        self._index = 0

    def next_messages(self) -> list[MessageDict]:
        """Of another conversation: its next question, often; an edit of an old one, or a new beginning, sometimes."""
        self._index = int(self._rng.integers(len(self._talks)))
        talk = self._talks[self._index]
        what = self._rng.random()
        if len(talk) > _MOST_MESSAGES or what < _NEW:
            talk = [self._header]
        elif what < _NEW + _EDIT and len(talk) > 1:
            talk = talk[: 2 * int(self._rng.integers(1, len(talk) // 2 + 1)) - 1]
        return [*talk, says("user", self._texts.text(5, 60))]

    def ask(self, http: httpx.Client, messages: list[MessageDict]) -> Told:
        """Greedily. The conversation goes on with what has come, whoever left."""
        leaves_after = 3 if self._rng.random() < _LEAVE else _REPLY_TOKENS
        body = {"messages": messages, "max_tokens": _REPLY_TOKENS, "temperature": 0, "stream": True, "logprobs": True}
        pieces: list[dict[str, Any]] = []
        is_left = is_cut = False
        try:
            with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                assert reply.status_code == 200, reply.read()
                for piece in _pieces(reply):
                    pieces.append(piece)
                    is_left = len(_tokens(pieces)) > leaves_after
                    if is_left:
                        break
        except httpx.TransportError:
            is_cut = True
        answer = _answer(pieces)
        self._talks[self._index] = [*messages, says("assistant", answer.text)] if answer.text else messages[:-1]
        return Told(messages, answer, is_left, is_cut)


def _pieces(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in filter(lambda line: line.startswith("data: {"), reply.iter_lines()):
        piece = json.loads(line.removeprefix("data: "))
        assert "error" not in piece, piece
        yield piece


def _tokens(pieces: list[dict[str, Any]]) -> tuple[int, ...]:
    places = [choice.get("logprobs") or {"content": []} for piece in pieces for choice in piece["choices"]]
    return tuple(token["id"] for place in places for token in place["content"])


def _answer(pieces: list[dict[str, Any]]) -> Answer:
    words = [choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"]]
    timings = next((piece["timings"] for piece in pieces if "timings" in piece), {"cache_n": 0, "prompt_n": 0})
    tokens, cached, computed = _tokens(pieces), timings["cache_n"], timings["prompt_n"]
    return Answer("".join(words), cached + computed, len(tokens), cached, computed, 0.0, tokens)
