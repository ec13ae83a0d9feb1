"""Random trees of conversations: what people and agents do to a server, as one request after the other.

A *step* is one request with something that makes it hard: it goes on, edits, branches, comes back, regenerates,
shortens the reply before it, shares a header, has stop strings, a schema or tools, passes the window, or nearly fills
the context. Steps of several conversations come in any order. What a step was answered decides how the next goes on.
"""

import base64
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Body = dict[str, Any]
MessageDict = dict[str, Any]

_WORDS = ("the", "a", "red", "old", "river", "stone", "walks", "sings", "over", "two", "Anna", "Oslo", "likes", "and")
_SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


_NUM_PICTURES = 6
_PICTURE_ROOM = 200 * "x"  # in a chat


@dataclass(frozen=True)
class Sizes:
    """In tokens of a made-up text. The longest prompts pass a model's window, and nearly fill the smallest context."""

    num_vocabulary: int
    longest_turn: int = 40
    longest_header: int = 90
    longest_prompt: int = 300
    most_tokens: int = 1000
    reply: int = 8

    @property
    def most_characters(self) -> int:
        """Of a chat that has room for a turn more; with a vocabulary of bytes each is a token."""
        return 300 if self.num_vocabulary <= 256 else 1200


@dataclass(frozen=True)
class Step:
    """One request: where it is sent, and what it says. `is_left` if its client goes away in the middle of the reply."""

    name: str
    path: str
    body: Body
    is_left: bool = False


@dataclass
class TokenTalk:
    """A conversation of token numbers, for any model."""

    prompt: list[int]
    reply: list[int] = field(default_factory=list)


@dataclass
class ChatTalk:
    """A conversation of messages, for models with a template."""

    messages: list[MessageDict]
    extra: Body = field(default_factory=dict)
    reply: str = ""


Talk = TokenTalk | ChatTalk


class Tree:
    """Grows by what it is told: each step is followed by `answered`, unless its client has left."""

    def __init__(self, seed: int, sizes: Sizes, *, with_chat: bool, with_pictures: bool = False) -> None:
        self._rng = random.Random(seed)
        self._with_pictures = with_pictures
        self._sizes = sizes
        self._with_chat = with_chat
        self._talks: list[Talk] = []
        self._headers = [self._tokens(sizes.longest_header // 2, sizes.longest_header) for _ in range(2)]
        self._systems = [self._text(10, 40) for _ in range(2)]
        self._current: Talk | None = None

    def next(self) -> Step:
        rng = self._rng
        if not self._talks or rng.random() < 0.15:
            name, talk = "begin", self._begin()
        else:
            name, talk = self._grow(rng.choice(self._talks[-12:]))
        self._current = talk
        return self._token_step(name, talk) if isinstance(talk, TokenTalk) else self._chat_step(name, talk)

    def answered(self, tokens: Sequence[int], text: str) -> None:
        talk = self._current
        assert talk is not None
        if isinstance(talk, TokenTalk):
            talk.reply = list(tokens)
        else:
            talk.reply = text
        self._talks.append(talk)

    # --- what a conversation becomes

    def _begin(self) -> Talk:
        rng = self._rng
        if self._with_chat and rng.random() < (0.9 if self._with_pictures else 0.4):
            system = rng.choice([*self._systems, self._text(5, 20)])
            extra = rng.choice([{}, {}, {}, {"tools": [_TOOL]}])
            return ChatTalk([_says("system", system), self._user()], extra)
        if rng.random() < 0.1:
            return TokenTalk(self._tokens(self._sizes.longest_prompt, self._sizes.most_tokens))
        return TokenTalk(rng.choice([*self._headers, []]) + self._tokens(3, self._sizes.longest_turn))

    def _grow(self, talk: Talk) -> tuple[str, Talk]:
        name = self._rng.choice(["next", "next", "next", "edit", "branch", "regenerate", "shorten"])
        if isinstance(talk, ChatTalk):
            return name, self._grown_chat(name, talk)
        grown = self._grown_tokens(name, talk)
        return name, TokenTalk(grown.prompt[: self._sizes.most_tokens])

    def _grown_tokens(self, name: str, talk: TokenTalk) -> TokenTalk:
        rng, prompt = self._rng, talk.prompt
        if name == "regenerate":
            return TokenTalk(list(prompt))
        if name == "edit":
            place = rng.randrange(len(prompt))
            edited = prompt[:place] + self._tokens(1, 5) + prompt[place + rng.randint(0, 3) :]
            return TokenTalk(edited)
        if name == "branch" or len(prompt) == self._sizes.most_tokens:
            return TokenTalk(prompt[: rng.randint(1, len(prompt))] + self._tokens(1, self._sizes.longest_turn))
        reply = talk.reply if name == "next" else talk.reply[: rng.randint(0, len(talk.reply))]
        return TokenTalk(prompt + reply + self._tokens(1, self._sizes.longest_turn))

    def _grown_chat(self, name: str, talk: ChatTalk) -> ChatTalk:
        rng, messages = self._rng, talk.messages
        users = [index for index, message in enumerate(messages) if message["role"] == "user"]
        if name == "regenerate":
            return ChatTalk(list(messages), talk.extra)
        if sum(map(_length, messages)) > self._sizes.most_characters:
            return ChatTalk([*messages[: users[0]], self._user()], talk.extra)
        if name in ("edit", "branch"):
            place = rng.choice(users)
            later = messages[place + 1 :] if self._with_pictures and name == "edit" else []  # pictures behind the edit
            return ChatTalk([*messages[:place], self._user(), *later], talk.extra)
        words = talk.reply.split(" ")
        reply = talk.reply if name == "next" else " ".join(words[: rng.randint(0, len(words))])
        turn = [_says("assistant", reply or "I see."), self._user()]
        return ChatTalk([*messages, *turn], talk.extra)

    # --- what is sent

    def _token_step(self, name: str, talk: TokenTalk) -> Step:
        body = {"prompt": talk.prompt, "n_predict": self._num_reply(), "n_probs": 5, "return_tokens": True}
        return self._step(name, "/completion", body)

    def _chat_step(self, name: str, talk: ChatTalk) -> Step:
        body: Body = {"messages": talk.messages, "max_tokens": self._num_reply(), "logprobs": True, "top_logprobs": 5}
        if not talk.extra and self._rng.random() < 0.15:
            schema = {"name": "answer", "strict": True, "schema": _SCHEMA}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return self._step(name, "/v1/chat/completions", body | talk.extra)

    def _step(self, name: str, path: str, body: Body) -> Step:
        body["temperature"] = 0
        if self._rng.random() < 0.2:
            body["stop"] = [" " + self._rng.choice(_WORDS), "e"]
        return Step(name, path, body, is_left=self._rng.random() < 0.06)

    def _user(self) -> MessageDict:
        """What the user says, with a picture or two in it."""
        text, rng = self._text(3, 25), self._rng
        if not self._with_pictures or rng.random() < 0.4:
            return _says("user", text)
        parts: list[Any] = [{"type": "text", "text": text}]
        for _ in range(rng.randint(1, 2)):
            parts.insert(rng.randint(0, len(parts)), picture_part(rng.randrange(_NUM_PICTURES)))
        return {"role": "user", "content": parts}

    def _num_reply(self) -> int:
        return self._rng.randint(1, self._sizes.reply)

    def _tokens(self, shortest: int, longest: int) -> list[int]:
        first, last = self._sizes.num_vocabulary // 8, self._sizes.num_vocabulary // 2
        return [self._rng.randint(first, last) for _ in range(self._rng.randint(shortest, longest))]

    def _text(self, shortest: int, longest: int) -> str:
        return " ".join(self._rng.choice(_WORDS) for _ in range(self._rng.randint(shortest, longest)))


def _length(message: MessageDict) -> int:
    """In characters; a picture takes as much room as so many of them."""
    content = message["content"]
    return len(content) if isinstance(content, str) else sum(len(part.get("text", _PICTURE_ROOM)) for part in content)


@cache
def picture_part(number: int) -> MessageDict:
    """One of a few pictures, of several sizes, as a BMP file in a data URL."""
    rng = random.Random(number)
    width, height = rng.choice([(64, 64), (130, 100), (40, 150)])
    rows = b"".join(rng.randbytes(3 * width).ljust(-(-3 * width // 4) * 4, b"\0") for _ in range(height))
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 2835, 2835, 0, 0)
    file = struct.pack("<2sIHHI", b"BM", 14 + len(header) + len(rows), 0, 0, 14 + len(header)) + header + rows
    url = f"data:image/bmp;base64,{base64.b64encode(file).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _says(role: str, content: str) -> MessageDict:
    return {"role": role, "content": content}
