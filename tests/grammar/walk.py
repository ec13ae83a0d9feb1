"""Goes through a grammar token by token, along a given text or at random."""

import numpy as np

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.compile import Grammars
from leftoff.grammar.grammar import Grammar
from leftoff.scheduler.job import Constraint
from leftoff.types import Logits


def accepts(grammars: Grammars, grammar: Grammar, text: str) -> bool:
    """Whether the text is one that the grammar describes, from its beginning to its end."""
    matcher = grammars.match(grammars.compile(grammar))
    for token in grammars.vocabulary.tokenize(text, parse_special=True).tolist():
        if matcher.is_done or token not in allowed(matcher, grammars.vocabulary):
            return False
        matcher.accept(token)
    return matcher.is_done or bool(allowed(matcher, grammars.vocabulary) & grammars.vocabulary.end_tokens)


def allowed(constraint: Constraint, vocabulary: Vocabulary) -> frozenset[int]:
    logits: Logits = np.zeros(vocabulary.size, np.float32)
    constraint.mask(logits)
    return frozenset(np.flatnonzero(logits == 0).tolist())


def write(constraint: Constraint, vocabulary: Vocabulary, text: str) -> None:
    """Fails where a token of the text is forbidden."""
    for token in vocabulary.tokenize(text, parse_special=True).tolist():
        assert token in allowed(constraint, vocabulary), f"{vocabulary.piece(token)!r} in {text!r} is forbidden"
        constraint.accept(token)


def may_end(constraint: Constraint, vocabulary: Vocabulary) -> bool:
    return bool(allowed(constraint, vocabulary) & vocabulary.end_tokens)
