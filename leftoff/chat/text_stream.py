"""Detokenises a reply token by token. Characters and stop strings may span several tokens."""

import codecs

from leftoff.engine.vocabulary import Vocabulary
from leftoff.types import partial_match_length


class TextStream:
    """The text of one reply, up to a stop string."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        stops: tuple[str, ...] = (),
        *,
        show_control: bool = False,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        """Control tokens become text if they are in `shown`, or all with `show_control`."""
        self._vocabulary = vocabulary
        self._hidden = frozenset() if show_control else vocabulary.control_tokens - shown
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stop: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None

    def push(self, token: int) -> str:
        """The text that is final now. What may be the beginning of a stop string is held back."""
        if token in self._hidden:
            return ""
        return self._release(self._decoder.decode(self._vocabulary.piece(token)))

    def close(self) -> str:
        """At the end of the reply: the text that was held back."""
        if self.is_stopped:
            return ""
        rest = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return rest if self.is_stopped else rest + held

    def _release(self, text: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [(position, stop) for stop in self._stops if (position := text.find(stop)) >= 0]
        if found:
            # The one that is complete first, as if the characters had come one by one.
            position, self.stop = min(found, key=lambda item: (item[0] + len(item[1]), item[0]))
            self._held = ""
            return text[:position]
        held = max((partial_match_length(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]
