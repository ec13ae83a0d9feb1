"""The texts of a request as tokens, no longer than the model takes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from leftoff.chat.meter import TokenMeter, TooManyTokensError
from leftoff.chat.work import checkpoint
from leftoff.engine.embedder import Shape
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import ControlPart, Vocabulary
from leftoff.server.embeddings.types import MAX_TEXTS
from leftoff.server.http.body import decode
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.request.raw_prompts import token_ids
from leftoff.types import Tokens

_TEMPLATE = "tokenizer.chat_template.rerank"
_PLACES = re.compile(r"\{query\}|\{document\}")


@dataclass(frozen=True)
class TextReader:
    """Reads texts for one model. With `cuts`, what is too long is cut at its end, and else refused."""

    vocabulary: Vocabulary
    max_tokens: int
    cuts: bool = False
    template: str = ""  # of a query and a text, with {query} and {document} in their places

    @classmethod
    def of(cls, model: Model, shape: Shape, max_tokens: int | None = None, *, cuts: bool) -> "TextReader":
        longest = min(shape.max_tokens, max_tokens) if max_tokens and max_tokens > 0 else shape.max_tokens
        template = str(model.metadata.get(_TEMPLATE, ""))
        return cls(model.vocabulary, longest, cuts=cuts or max_tokens is not None, template=template)

    def read(self, data: msgspec.Raw, place: str) -> list[Tokens]:
        """A text or a list of token ids, or a list of either."""
        value: Any = decode(bytes(data), object)
        if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is int):
            return [self._one(value, place)]
        if not isinstance(value, list) or not value:
            raise bad_field(place, "must be a text, a list of token ids, or a list of these that is not empty")
        if len(value) > MAX_TEXTS:
            raise bad_field(place, f"has {len(value)} texts: at most {MAX_TEXTS} are taken at once")
        return [self._one(each, f"{place}[{index}]") for index, each in enumerate(value)]

    def pair(self, query: str, text: str, place: str, most: int | None = None) -> Tokens:
        """A query and a text as reranking models read them, the text in at most so many tokens."""
        if self.template:
            return self._templated(query, text, place, most)
        words = self.vocabulary
        begun, ended = _mark(words.bos if words.adds_bos else None), _mark(words.eos if words.adds_eos else None)
        parted = _mark(words.separator)
        asked = words.tokenize(query, parse_special=False)
        told = words.tokenize(text, parse_special=False)[:most]
        room = self._room_beside(begun.size + asked.size + parted.size + 2 * ended.size)
        return np.concatenate([begun, asked, ended, parted, self._fitted(told, room, place), ended])

    def _templated(self, query: str, text: str, place: str, most: int | None) -> Tokens:
        """A pair by the template of the model file; only the text is cut."""
        told = self.vocabulary.tokenize(text, parse_special=False)
        room = self._room_beside(self._filled(query, "").size)
        kept = self._fitted(told[:most], room, place)
        filled = self._filled(query, text if kept.size == told.size else self.vocabulary.text(kept))
        return self._fitted(filled, self.max_tokens, place)

    def _filled(self, query: str, text: str) -> Tokens:
        """The template with both in their places; in them, the name of a control token is a text as any other."""
        given = {"{query}": query, "{document}": text}
        filled = [(_PLACES.sub(lambda place: given[place[0]], part), token is not None) for part, token in self._parts]
        return np.concatenate([self.vocabulary.tokenize(part, parse_special=special) for part, special in filled])

    @cached_property
    def _parts(self) -> list[ControlPart]:
        return [*self.vocabulary.control_parts(self.template)]

    def _one(self, value: object, place: str) -> Tokens:
        checkpoint()
        if isinstance(value, str):
            tokens = self.vocabulary.tokenize(self._bounded(value, place), add_special=True)
        elif isinstance(value, list):
            tokens = token_ids(value, self.vocabulary, place)
        else:
            raise bad_field(place, "must be a text or a list of token ids")
        if not tokens.size:
            raise bad_field(place, "is empty: there is nothing to embed")
        return self._fitted(tokens, self.max_tokens, place)

    def _bounded(self, text: str, place: str) -> str:
        """A text without what is cut in any case: to tokenise takes the square of its control tokens."""
        meter = TokenMeter(self.vocabulary, self.max_tokens)
        if self.cuts:
            return text[: meter.most_characters]
        try:
            meter.check(text)
        except TooManyTokensError as error:
            raise self._too_long(place, f"about {error.num_tokens}", self.max_tokens) from error
        return text

    def _too_long(self, place: str, num_tokens: int | str, room: int) -> ApiError:
        problem = f"has {num_tokens} tokens, and the model takes {max(0, room)} at most"
        return bad_field(place, f"{problem}: send less, or truncate: true")

    def _room_beside(self, num_asked: int) -> int:
        """How many tokens a query leaves for the text that may answer it."""
        if num_asked >= self.max_tokens:
            problem = f"has {num_asked} tokens, and the model takes {self.max_tokens} at most, with a document"
            raise bad_field("query", f"{problem}: send a shorter one")
        return self.max_tokens - num_asked

    def _fitted(self, tokens: Tokens, room: int, place: str) -> Tokens:
        if tokens.size <= room:
            return tokens
        if not self.cuts or room < 1:
            raise self._too_long(place, tokens.size, room)
        kept = tokens[:room].copy()
        if self.vocabulary.adds_eos and tokens[-1] == self.vocabulary.eos:
            kept[-1] = tokens[-1]  # where the last one counts, it must be the one that the model was trained with
        return kept


def texts_of(values: Sequence[str | dict[str, Any]], place: str) -> list[str]:
    """Documents, which may be objects with a field `text`."""
    return [text_of(value, f"{place}[{index}]") for index, value in enumerate(values)]


def text_of(value: str | dict[str, Any], place: str) -> str:
    """A text, or the field `text` of an object."""
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise bad_field(place, "must be a text, or an object with a field text")
    return text


def _mark(token: int | None) -> Tokens:
    return np.array([] if token is None else [token], np.int32)
