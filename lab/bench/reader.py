"""Asks a server for the very tokens of prompts and replies, so that what is unavoidable can be counted exactly."""

from collections.abc import Sequence

import httpx
import numpy as np

from lab.bench.ask import Ask, Messages, says
from lab.bench.client import Answer
from leftoff.types import Tokens

_SOME_WORD = "word"


class Reader:
    """The tokens as the server's own template and tokenizer make them."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    @property
    def can_read(self) -> bool:
        """Whether the server tells its templates and tokens: llama-server and its kin do."""
        return self._http.post("/apply-template", json={"messages": [says("user", "?")]}).status_code == httpx.codes.OK

    @property
    def window(self) -> int:
        """The tokens of context that it really has: llama.cpp rounds up."""
        return int(self._http.get("/props").raise_for_status().json()["default_generation_settings"]["n_ctx"])

    def prompt(self, messages: Messages, ask: Ask) -> Tokens:
        return self._tokens(self._text(messages, ask))

    def reply(self, ask: Ask, answer: Answer) -> Tokens:
        """What the model has read of its own words: the last one of a reply that was cut off was only chosen."""
        tokens = self._tokens(self._said(ask, answer))
        return tokens[:-1] if answer.is_cut_off else tokens

    def _said(self, ask: Ask, answer: Answer) -> str:
        """Reasoning is not told again, so where it begins is all that counts of it; calls are as the template has them.

        prompt [ reply )[ closing, next message )
        """
        reply = answer.reply
        if not reply.calls:
            return reply.reasoning + reply.content
        start = len(self._text(ask.messages, ask))
        told, other = (
            self._text([*ask.messages, message, says("user", _SOME_WORD)], ask)
            for message in (reply.message, says("assistant", _SOME_WORD))
        )
        return told[start : len(told) - (len(other) - start - len(_SOME_WORD))]

    def _text(self, messages: Messages, ask: Ask) -> str:
        body = {
            "messages": [*messages],
            "tools": [*ask.tools] or None,
            "chat_template_kwargs": {"enable_thinking": ask.thinks},
        }
        return str(self._post("/apply-template", {key: value for key, value in body.items() if value}, "prompt"))

    def _tokens(self, text: str) -> Tokens:
        tokens = self._post("/tokenize", {"content": text}, "tokens")
        return np.array(tokens, np.int32)

    def _post(self, path: str, body: dict[str, object], key: str) -> str | Sequence[int]:
        answer = self._http.post(path, json=body).raise_for_status().json()[key]
        return answer if isinstance(answer, str) else list(answer)
