"""Which parts of a reply are free, and what the others must look like."""

from dataclasses import dataclass

from leftoff.grammar.grammar import Grammar


@dataclass(frozen=True)
class Marks:
    """The texts around what a model thinks before it speaks."""

    open: str
    close: str


@dataclass(frozen=True)
class Trigger:
    """A text in a free part, after which the grammar holds."""

    text: str
    grammar: Grammar


@dataclass(frozen=True)
class Outline:
    """What a reply may be.

    With a grammar, and no triggers:   [ reasoning: free ][ by the grammar ]
    With triggers:                     [ reasoning: free ][ free ··· trigger ][ by its grammar ][ free ···
    """

    grammar: Grammar | None = None
    triggers: tuple[Trigger, ...] = ()
    repeats: bool = False  # after a trigger's grammar the reply may go on
    marks: Marks | None = None  # of a model that may think first
    is_thinking: bool = False  # the prompt has opened the reasoning already
