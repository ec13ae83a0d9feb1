"""People who talk to one server: their conversations grow, are edited, begin anew, and are left in the middle.

What they say comes from a script with an end, and they say it again and again: what a server remembers of texts and
replies is full after a while, and what grows from then on is a leak.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from leftoff.client import read_chunks
from tests.patience import PATIENCE_S
from tests.server.wire import Answer, MessageDict, Texts, says

_NUM_QUESTIONS = 8
_QUESTION_TOKENS = (5, 60)
_REPLY_TOKENS, _SOON = 12, 3
_ANEW, _EDITED, _LEFT = 0.05, 0.15, 0.2  # how often


@dataclass(frozen=True)
class Question:
    text: str
    is_left: bool  # before the reply is complete


class Conversation:
    """Two lines of questions with a common beginning. An edit leads from one to the other."""

    def __init__(self, header: str, texts: Texts, rng: np.random.Generator) -> None:
        self._header = says("system", header)
        self._fork = int(rng.integers(1, _NUM_QUESTIONS))
        first, second = ([_question(texts, rng) for _ in range(_NUM_QUESTIONS)] for _ in range(2))
        self._lines = (first, [*first[: self._fork], *second[self._fork :]])
        self.begin()

    def begin(self) -> None:
        self._line = 0
        self._told = [self._header]

    def edit(self) -> None:
        if self._turn > self._fork:
            self._line = 1 - self._line
            self._told = self._told[: 1 + 2 * self._fork]

    def replied(self, text: str) -> None:
        """Nothing is as if it had not been asked."""
        if text:
            self._told = [*self.messages, says("assistant", text)]
        if self._turn == _NUM_QUESTIONS:
            self.begin()

    @property
    def question(self) -> Question:
        return self._lines[self._line][self._turn]

    @property
    def messages(self) -> list[MessageDict]:
        return [*self._told, says("user", self.question.text)]

    @property
    def _turn(self) -> int:
        return len(self._told) // 2


@dataclass(frozen=True)
class Told:
    """What was sent and what came back: all of it, or as much as had come when one side was gone."""

    messages: list[MessageDict]
    answer: Answer
    is_left: bool  # by the client
    cut_by: httpx.TransportError | None  # the server is gone


class Talker:
    """Has some conversations, and goes on with one at a time. Everything is asked for greedily."""

    def __init__(self, seed: int, header: str, num_conversations: int) -> None:
        self._rng = np.random.default_rng(seed)
        texts = Texts(seed)
        self._conversations = [Conversation(header, texts, self._rng) for _ in range(num_conversations)]

    def choose(self) -> Conversation:
        conversation = self._conversations[int(self._rng.integers(len(self._conversations)))]
        what = self._rng.random()
        if what < _ANEW:
            conversation.begin()
        elif what < _ANEW + _EDITED:
            conversation.edit()
        return conversation

    def ask(self, http: httpx.Client, conversation: Conversation) -> Told:
        """The conversation goes on with what has come, whoever left."""
        messages, is_left = conversation.messages, conversation.question.is_left
        body = {"messages": messages, "max_tokens": _REPLY_TOKENS, "temperature": 0, "stream": True, "logprobs": True}
        pieces: list[dict[str, Any]] = []
        cut_by = None
        try:
            with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                assert reply.status_code == 200, reply.read()
                for piece in _pieces(reply):
                    pieces.append(piece)
                    if is_left and len(_places(pieces)) >= _SOON:
                        break
        except httpx.TransportError as error:
            cut_by = error
        answer = _answer(pieces)
        conversation.replied(answer.text)
        return Told(messages, answer, is_left, cut_by)


def connected(url: str) -> httpx.Client:
    """A new connection for every request: one that was idle may be closed by the server just when it is used again."""
    return httpx.Client(base_url=url, timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0))


def _question(texts: Texts, rng: np.random.Generator) -> Question:
    return Question(texts.text(*_QUESTION_TOKENS), bool(rng.random() < _LEFT))


def _pieces(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for piece in read_chunks(reply.iter_lines()):
        assert "error" not in piece, piece
        yield piece


def _places(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each token, with its chance."""
    known = [choice["logprobs"] for piece in pieces for choice in piece["choices"] if choice.get("logprobs")]
    return [place for logprobs in known for place in logprobs["content"]]


def _answer(pieces: list[dict[str, Any]]) -> Answer:
    words = [choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"]]
    timings = next((piece["timings"] for piece in pieces if "timings" in piece), {"cache_n": 0, "prompt_n": 0})
    cached, computed, places = timings["cache_n"], timings["prompt_n"], _places(pieces)
    tokens = tuple(place["id"] for place in places)
    chances = tuple({place["id"]: place["logprob"]} for place in places)
    return Answer("".join(words), cached + computed, len(tokens), cached, computed, 0.0, tokens, chances)
