"""Replies in which reasoning and calls stand between tags, and all else is content: most models' way."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from leftoff.chat.formats.base import CallSyntax, OutputFormat, Thinking, Wanted
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tools import Tools


class CallFormat(ABC):
    """How calls are written."""

    syntax: CallSyntax
    triggers: tuple[str, ...]  # each begins one or more calls, anywhere in the content
    markers: tuple[str, ...] = ()  # what else steers
    is_bare: bool = False  # a reply may also be a call without any trigger

    @abstractmethod
    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:
        """From behind a trigger, which is "" at the beginning of a reply, to behind the last of its calls.

        Holds what may turn out to be none. After a `NotSoError`, what is held is content.
        """


class TaggedFormat(OutputFormat):
    """`thinking` is None for a model that has no reasoning of its own."""

    def __init__(self, name: str, calls: CallFormat, thinking: Thinking | None = None) -> None:
        self.name = name
        self.syntax = calls.syntax
        self.thinking = thinking
        self._calls = calls
        self._triggers = Markers(*calls.triggers)
        self._end_of_thinking = Markers(thinking.end) if thinking else Markers()
        self._shown_end_of_thinking = Markers(thinking.end, strips=False) if thinking else Markers()

    @property
    def trigger(self) -> str:
        return "" if self._calls.is_bare else self._calls.triggers[0]

    @property
    def markers(self) -> Sequence[str]:
        tags = (self.thinking.begin, self.thinking.end) if self.thinking else ()
        return (*(tag.strip() for tag in tags), *self._calls.triggers, *self._calls.markers)

    def read(self, reading: Reading, wanted: Wanted) -> Waiting[None]:
        if wanted.begins_in_reasoning:
            yield from self._read_reasoning(reading, wanted)
        while (yield from self._begins_reasoning(reading, wanted)):
            yield from self._read_reasoning(reading, wanted)
        if self._calls.is_bare and wanted.tools:
            yield from self._read_calls(reading, wanted.tools, "")
        triggers = self._triggers if wanted.tools else Markers(strips=False)
        while trigger := (yield from reading.until(triggers, reading.say_content)):
            yield from self._read_calls(reading, wanted.tools, trigger)

    def _begins_reasoning(self, reading: Reading, wanted: Wanted) -> Waiting[bool]:
        """Only before the first word: later on, it is what is spoken of."""
        if self.thinking is None:
            return False
        reading.hold()
        try:
            yield from reading.spaces()
            begins = yield from reading.literal(self.thinking.begin)
        except NotSoError:
            begins = False
        if not begins or not wanted.splits_reasoning:
            reading.go_back()
        reading.let_go()
        return begins

    def _read_reasoning(self, reading: Reading, wanted: Wanted) -> Waiting[None]:
        if wanted.splits_reasoning:
            yield from reading.spaces()
            yield from reading.until(self._end_of_thinking, reading.say_reasoning)
            yield from reading.spaces()
        elif self.thinking and (yield from reading.until(self._shown_end_of_thinking, reading.say_content)):
            reading.say_content(self.thinking.end)

    def _read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:
        """What turns out to be no call is content: the trigger, and whatever follows it."""
        num_before, seen = reading.num_calls, reading.gap + trigger if trigger else ""
        reading.hold()
        try:
            yield from self._calls.read_calls(reading, tools, trigger)
            reading.let_go()
        except NotSoError:
            reading.go_back()
            if reading.num_calls == num_before:
                reading.say_content(seen)
                return
        reading.end_call()
        yield from reading.spaces()
