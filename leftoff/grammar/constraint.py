"""Constrains one reply: some parts are free, the others follow a grammar.

With a grammar for the whole reply:   [ reasoning: free ][ follows the grammar ]
With triggers:                        [ reasoning: free ][ free ··· trigger ][ follows its grammar ][ free ···
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from llguidance import LLMatcher

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.compile import Grammars
from leftoff.grammar.grammar import SPACES, Grammar, literal
from leftoff.grammar.matcher import Matcher
from leftoff.types import Logits, ReasoningTags, Tokens, partial_match_length


@dataclass(frozen=True)
class Trigger:
    """A text in a free part of the reply. What follows it must follow `grammar`."""

    text: str
    grammar: Grammar


@dataclass(frozen=True)
class Outline:
    """The parts of a reply: a grammar for all of it after the reasoning, or else triggers."""

    grammar: Grammar | None = None
    triggers: tuple[Trigger, ...] = ()
    repeats: bool = False  # after a trigger's grammar is complete, the reply goes on freely
    reasoning: ReasoningTags | None = None  # set for a model that may reason first
    is_reasoning: bool = False  # the prompt ends with the opening tag


class GrammarConstraint:
    """The scheduler's `Constraint` for one reply. It either matches a grammar or watches free text for triggers."""

    def __init__(self, grammars: Grammars, outline: Outline) -> None:
        """Compiles every grammar that the outline can reach: decoding never waits for the compiler."""
        self._grammars = grammars
        self._outline = outline
        self._end_tokens = np.fromiter(grammars.vocabulary.end_tokens, np.int32)
        self._part: Matcher | _TextWatch
        self._rest_of_tag = b""  # of the opening tag, while all text of the reply so far is its beginning
        self.is_done = False
        self._after_trigger = {trigger.text: grammars.compile(trigger.grammar) for trigger in outline.triggers}
        self._at_start: LLMatcher | None = None
        self._after_reasoning: LLMatcher | None = None
        tags, grammar = outline.reasoning, outline.grammar
        if grammar is not None and tags is None:
            self._at_start = grammars.compile(grammar)
        elif grammar is not None and tags is not None:
            self._after_reasoning = grammars.compile(SPACES + grammar)  # most models write blank lines there
            if not outline.is_reasoning:
                self._at_start = grammars.compile(literal(tags.begin, grammars.vocabulary) | grammar)
        if outline.is_reasoning:
            self._begin_reasoning()
        else:
            self._begin(self._at_start)
            self._rest_of_tag = tags.begin.encode() if tags and self._at_start else b""

    def mask(self, logits: Logits) -> bool:
        """Sets the logits of forbidden tokens to minus infinity; returns False if no token is forbidden."""
        if isinstance(self._part, Matcher):
            return self._part.mask(logits)
        forbidden = self._part.overrunning_tokens()
        if self._outline.grammar is not None:  # the reply must not end before the grammar was followed
            forbidden = np.append(forbidden, self._end_tokens)
        logits[forbidden] = -np.inf
        return forbidden.size > 0

    def accept(self, token: int) -> None:
        """Advances by a token that was sampled."""
        if isinstance(self._part, _TextWatch):
            found = self._part.push(token)
            if found is not None:
                self._leave_free_part(found)
            return
        self._part.accept(token)
        if self._completes_opening_tag(token):
            self._begin_reasoning()
        elif self._part.is_done and self._outline.repeats:
            self._begin(None)
        else:
            self.is_done = self._part.is_done

    def _leave_free_part(self, found: str) -> None:
        tags = self._outline.reasoning
        if tags is not None and found == tags.begin:
            self._begin_reasoning()
        elif tags is not None and found == tags.end:
            self._begin(self._after_reasoning)
        else:
            self._begin(self._after_trigger[found])

    def _begin_reasoning(self) -> None:
        assert self._outline.reasoning is not None
        self._part = _TextWatch(self._grammars.vocabulary, [self._outline.reasoning.end])

    def _begin(self, start: LLMatcher | None) -> None:
        """Begins a part that follows a grammar, or a free part up to a trigger or the reasoning."""
        if start is not None:
            self._part = self._grammars.match(start)
            return
        tag = [self._outline.reasoning.begin] if self._outline.reasoning else []
        self._part = _TextWatch(self._grammars.vocabulary, [*self._after_trigger, *tag])

    def _completes_opening_tag(self, token: int) -> bool:
        piece = self._grammars.vocabulary.piece(token)
        is_part = bool(self._rest_of_tag) and self._rest_of_tag.startswith(piece)
        self._rest_of_tag = self._rest_of_tag[len(piece) :] if is_part else b""
        return is_part and not self._rest_of_tag


class _TextWatch:
    """Looks for texts in free output, however it is cut into tokens. Knows only the end of the output.

    A text must end where a token ends, since a grammar can only begin with a whole token. `overrunning_tokens` are
    those that contain the end of a text and more. They are few, rarely wanted, and masked.
    """

    def __init__(self, vocabulary: Vocabulary, texts: Iterable[str]) -> None:
        self._vocabulary = vocabulary
        self._texts = tuple(text.encode() for text in texts)
        self._longest = max(map(len, self._texts))
        self._tail = b""

    def push(self, token: int) -> str | None:
        """Returns the text that ends with this token, if any does."""
        output = self._tail + self._vocabulary.piece(token)
        self._tail = output[-self._longest :]
        found = (text for text in self._texts if output.endswith(text))
        return next((text.decode() for text in found), None)

    def overrunning_tokens(self) -> Tokens:
        begun = max((partial_match_length(self._tail, text) for text in self._texts), default=0)
        return _overrunning_tokens(self._vocabulary, self._texts, self._tail[len(self._tail) - begun :])


@lru_cache(256)
def _overrunning_tokens(vocabulary: Vocabulary, texts: tuple[bytes, ...], begun: bytes) -> Tokens:
    shortest = min(map(len, texts)) - len(begun)
    pieces = ((token, vocabulary.piece(token)) for token in range(vocabulary.size))
    found = [token for token, piece in pieces if len(piece) > shortest and _runs_past(begun + piece, texts)]
    return np.array(found, np.int32)


def _runs_past(output: bytes, texts: tuple[bytes, ...]) -> bool:
    return any(text in output[:-1] for text in texts)
