"""Parses one reply as its text arrives."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from leftoff.chat.formats.base import OutputFormat
from leftoff.chat.formats.offered_tools import OfferedTools
from leftoff.chat.formats.parts import Part
from leftoff.chat.formats.scanner import EnoughError, Scanner, Waiting
from leftoff.chat.template.render import ToolDict


@dataclass(frozen=True)
class Output:
    """How to parse the reply to one request. Without tools, text that looks like a call is content."""

    format: OutputFormat
    tools: Sequence[ToolDict] = ()
    splits_reasoning: bool = True  # otherwise reasoning is part of the content, with its tags
    one_call: bool = False  # stop after the first tool call

    def parser(self, prompt_end: str = "") -> "Parser":
        """`prompt_end` is the end of the prompt's text: some templates write the opening tag of the reasoning there."""
        scanner = Scanner(
            OfferedTools(self.tools),
            splits_reasoning=self.splits_reasoning,
            begins_in_reasoning=self.format.reasoning.are_opened_by(prompt_end),
            one_call=self.one_call,
        )
        return Parser(self.format, scanner)


class Parser:
    """Turns text into parts. The joined parts depend on the text alone, not on how it is cut."""

    def __init__(self, output_format: OutputFormat, scanner: Scanner) -> None:
        self._scanner = scanner
        self._steps = self._run(output_format.parse(scanner))
        self.is_over = False  # the one call that was allowed is complete

    def push(self, text: str) -> tuple[Part, ...]:
        """Returns the parts that are certain now."""
        if not text or self.is_over:
            return ()
        self._scanner.feed(text)
        next(self._steps)
        return self._scanner.take_parts()

    def close(self, *, is_cut: bool = False) -> tuple[Part, ...]:
        """Ends the reply; returns what was held back.

        If the reply `is_cut`, as by its limit, a call that had begun and whose arguments had not is left out: neither
        can it be made, nor is it content.
        """
        if self.is_over:
            return ()
        self._scanner.is_ended, self._scanner.is_cut = True, is_cut
        next(self._steps)
        return self._scanner.take_parts()

    def _run(self, steps: Waiting[None]) -> Waiting[None]:
        with suppress(EnoughError):
            yield from steps
        self.is_over = True
        yield
