"""Replies with reasoning and tool calls between tags, and content around them: how most models write."""

from abc import ABC, abstractmethod

from leftoff.chat.formats.base import CallSyntax, OutputFormat
from leftoff.chat.formats.scanner import Markers, MismatchError, Scanner, Waiting
from leftoff.types import ReasoningTags


class CallFormat(ABC):
    """How a model family writes tool calls."""

    syntax: CallSyntax
    triggers: tuple[str, ...]  # each begins one or more calls, anywhere in the content
    markers: tuple[str, ...] = ()  # other texts that the parser looks for
    is_bare: bool = False  # a reply may also begin with a call that has no trigger

    @abstractmethod
    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        """Parses one or more calls from behind their trigger, which is empty for bare ones.

        Keeps a mark before text that may turn out to be content: after a `MismatchError`, content goes on at the mark.
        """


class TaggedFormat(OutputFormat):
    """How one family writes: calls in its own way, and reasoning between tags if it writes any."""

    def __init__(self, name: str, calls: CallFormat, reasoning: ReasoningTags) -> None:
        self.name = name
        self.syntax = calls.syntax
        self.reasoning = reasoning
        self.trigger = "" if calls.is_bare else calls.triggers[0]
        self.markers = (reasoning.begin.strip(), reasoning.end.strip(), *calls.triggers, *calls.markers)
        self._calls = calls
        self._triggers = Markers(*calls.triggers)
        self._reasoning_end = Markers(reasoning.end)
        self._shown_reasoning_end = Markers(reasoning.end, strips=False)

    def parse(self, scanner: Scanner) -> Waiting[None]:
        if scanner.begins_in_reasoning:
            yield from self._parse_reasoning(scanner)
        while (yield from self._begins_reasoning(scanner)):
            yield from self._parse_reasoning(scanner)
        if self._calls.is_bare and scanner.tools:
            yield from self._parse_calls(scanner, "")
        triggers = self._triggers if scanner.tools else Markers(strips=False)
        while trigger := (yield from scanner.until(triggers, scanner.emit_content)):
            yield from self._parse_calls(scanner, trigger)

    def _begins_reasoning(self, scanner: Scanner) -> Waiting[bool]:
        """Skips the opening tag, but only before any content: later on, the model writes about the tag."""
        scanner.mark()
        try:
            yield from scanner.spaces()
            begins = yield from scanner.accept(self.reasoning.begin)
        except MismatchError:
            begins = False
        if not begins or not scanner.splits_reasoning:
            scanner.rewind()
        scanner.unmark()
        return begins

    def _parse_reasoning(self, scanner: Scanner) -> Waiting[None]:
        if scanner.splits_reasoning:
            yield from scanner.spaces()
            yield from scanner.until(self._reasoning_end, scanner.emit_reasoning)
            yield from scanner.spaces()
        elif (yield from scanner.until(self._shown_reasoning_end, scanner.emit_content)):
            scanner.emit_content(self.reasoning.end)

    def _parse_calls(self, scanner: Scanner, trigger: str) -> Waiting[None]:
        """Parses the calls behind a trigger. If no call follows, the trigger is content."""
        num_before, skipped = scanner.num_calls, scanner.spaces_before_marker + trigger if trigger else ""
        scanner.trigger = trigger
        scanner.mark()
        try:
            yield from self._calls.parse_calls(scanner)
            scanner.unmark()
        except MismatchError:
            has_calls = scanner.num_calls > num_before
            if scanner.is_cut and (trigger or has_calls):  # without a trigger, any JSON begins like a call
                scanner.drop_rest()
                return
            scanner.rewind()
            if not has_calls:
                scanner.emit_content(skipped)
                return
        scanner.end_call()
        yield from scanner.spaces()
