"""Parses one reply, as its text comes."""

from contextlib import suppress

from leftoff.chat.formats.base import OutputFormat, Wanted
from leftoff.chat.formats.parts import Part
from leftoff.chat.formats.scanner import EnoughError, Reading, Waiting


class Parser:
    """A pure function of the text: however it is cut, the parts say the same. The last call is `close`."""

    def __init__(self, output_format: OutputFormat, wanted: Wanted, *, one_call: bool = False) -> None:
        self._reading = Reading(one_call=one_call)
        self._steps = self._run(output_format.read(self._reading, wanted))
        self.is_over = False

    @property
    def num_calls(self) -> int:
        return self._reading.num_calls

    def push(self, text: str) -> tuple[Part, ...]:
        """What is certain now."""
        if not text or self.is_over:
            return ()
        self._reading.feed(text)
        next(self._steps)
        return self._reading.take()

    def close(self) -> tuple[Part, ...]:
        """What was held back."""
        if self.is_over:
            return ()
        self._reading.is_ended = True
        next(self._steps)
        return self._reading.take()

    def _run(self, steps: Waiting[None]) -> Waiting[None]:
        with suppress(EnoughError):
            yield from steps
        self.is_over = True
        yield
