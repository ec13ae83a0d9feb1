"""Leads one reply along its outline: lets the free parts be, and asks a grammar for the others."""

from collections.abc import Iterator

import numpy as np

from leftoff.grammar.compile import Grammars
from leftoff.grammar.grammar import SPACES, Grammar
from leftoff.grammar.literal import literal
from leftoff.grammar.matcher import Matcher
from leftoff.grammar.outline import Outline
from leftoff.grammar.triggers import Watch
from leftoff.types import Logits


class Guide:
    """A constraint of the scheduler. At any time it either follows a grammar or watches what is written freely."""

    def __init__(self, grammars: Grammars, outline: Outline) -> None:
        """Compiles all that the outline may come to: a reply that has begun waits for no compiler."""
        self._grammars = grammars
        self._outline = outline
        self._unopened = b""  # what is still to come of the opening mark, if all that was written is its beginning
        self._part: Matcher | Watch
        self._ends = np.fromiter(grammars.vocabulary.end_tokens, np.int32)
        self.is_done = False
        self._compiled = {grammar: grammars.compile(grammar) for grammar in self._all_grammars()}
        if outline.is_thinking:
            self._think()
        else:
            self._begin()

    def mask(self, logits: Logits) -> bool:
        """Forbids what must not come next. False if there is nothing to forbid."""
        if isinstance(self._part, Matcher):
            return self._part.mask(logits)
        forbidden = self._part.crossing()
        if self._outline.grammar is not None:  # what it asks for is still to come
            forbidden = np.append(forbidden, self._ends)
        logits[forbidden] = -np.inf
        return forbidden.size > 0

    def accept(self, token: int) -> None:
        if isinstance(self._part, Watch):
            found = self._part.push(token)
            if found is not None:
                self._leave_freedom(found)
            return
        self._part.accept(token)
        if self._opens_reasoning(token):
            self._think()
        elif self._part.is_done:
            self._leave_grammar()

    def _begin(self) -> None:
        """The model may think first, or speak at once."""
        marks = self._outline.marks
        if self._outline.grammar is None:
            self._part = self._watch_triggers()
        elif marks is None:
            self._part = self._follow(self._outline.grammar)
        else:
            self._part = self._follow(self._with_opening(self._outline.grammar))
            self._unopened = marks.open.encode()

    def _think(self) -> None:
        assert self._outline.marks is not None
        self._part = Watch(self._grammars.vocabulary, [self._outline.marks.close])

    def _leave_freedom(self, found: str) -> None:
        marks = self._outline.marks
        if marks is not None and found == marks.open:
            self._think()
        elif marks is not None and found == marks.close:
            self._speak()
        else:
            (grammar,) = (trigger.grammar for trigger in self._outline.triggers if trigger.text == found)
            self._part = self._follow(grammar)

    def _speak(self) -> None:
        """After the reasoning, which most models end with blank lines."""
        if self._outline.grammar is None:
            self._part = self._watch_triggers()
        else:
            self._part = self._follow(SPACES + self._outline.grammar)

    def _leave_grammar(self) -> None:
        if self._outline.repeats:
            self._part = self._watch_triggers()
        else:
            self.is_done = True

    def _follow(self, grammar: Grammar) -> Matcher:
        return self._grammars.follow(self._compiled[grammar])

    def _watch_triggers(self) -> Watch:
        opening = [self._outline.marks.open] if self._outline.marks else []
        texts = [trigger.text for trigger in self._outline.triggers]
        return Watch(self._grammars.vocabulary, [*texts, *opening])

    def _opens_reasoning(self, token: int) -> bool:
        piece = self._grammars.vocabulary.piece(token)
        is_opening = bool(self._unopened) and self._unopened.startswith(piece)
        self._unopened = self._unopened[len(piece) :] if is_opening else b""
        return is_opening and not self._unopened

    def _with_opening(self, grammar: Grammar) -> Grammar:
        assert self._outline.marks is not None
        return literal(self._outline.marks.open, self._grammars.vocabulary) | grammar

    def _all_grammars(self) -> Iterator[Grammar]:
        yield from (trigger.grammar for trigger in self._outline.triggers)
        if self._outline.grammar is None:
            return
        if self._outline.marks is None:
            yield self._outline.grammar
            return
        yield SPACES + self._outline.grammar
        if not self._outline.is_thinking:
            yield self._with_opening(self._outline.grammar)
