"""The trail of one reply: its last tokens, and the place before where the same tokens stand."""

from dataclasses import dataclass
from enum import Enum

from leftoff.drafts.token_log import LONGEST_MATCH, ORDERS, TokenLog
from leftoff.types import Tokens

_ORDER, _LONG = ORDERS
FAMILY_TOKENS = 64
_MAX_PLACES = 1 << 14  # about 3 MiB for one reply
_CHANCES = (0.0, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.95)  # at first, for matches of 0, 1, 2, 4, 8, 16, 32 and 64 tokens
_WEIGHT = 0.06  # of the newest token: about the last sixteen count


class DraftSource(Enum):
    """Where a draft was copied from, or what has guessed it."""

    REPLY = "reply"  # this reply
    CONVERSATION = "conversation"  # its prompt
    SIBLING = "sibling"  # another sequence that begins with the same tokens
    OTHER = "other"  # any other of the namespace
    MTP = "mtp"  # the next-token layer of the model
    EAGLE = "eagle"  # an EAGLE-3 head
    MODEL = "model"  # a draft model


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next, and how many before them are the same where they were copied from.

    With it `rate` times as many tokens a second are expected as come one at a time.
    """

    tokens: list[int]
    length: int
    source: DraftSource
    rate: float = 0.0


def family_of(tokens: Tokens) -> int:
    """A number that sequences have in common if they begin with the same tokens."""
    return hash(tokens[:FAMILY_TOKENS].tobytes())


class Odds:
    """How often the next token of a match is right, by the length of the match. Those of a reply begin with all's."""

    def __init__(self, of_all: "Odds | None" = None) -> None:
        self._of_all = of_all
        self._chances: list[float] = [*(_CHANCES if of_all is None else of_all._chances)]

    def chance(self, length: int) -> float:
        """How likely the token is right that follows a match of `length` tokens."""
        return self._chances[length.bit_length() if length < LONGEST_MATCH else -1]

    def saw(self, length: int, *, is_right: bool) -> None:
        index = length.bit_length() if length < LONGEST_MATCH else -1
        self._chances[index] += _WEIGHT * (is_right - self._chances[index])
        if self._of_all is not None:
            self._of_all.saw(length, is_right=is_right)


class Trail:
    """Follows the longest match of the last tokens, in this reply or in the log, as long as it is right."""

    def __init__(self, log: TokenLog, prompt: Tokens, odds: Odds) -> None:
        self._log = log
        self._prompt = prompt
        self._family = family_of(prompt)
        self._recent: list[int] = prompt[-LONGEST_MATCH:].tolist()
        self._num_before = len(self._recent)
        self._places: dict[tuple[int, ...], int] = {}  # what follows each three tokens of the reply
        self._at: int | None = None  # the token that is expected next, in the reply or in the log
        self._is_in_log = False
        self.length = 0  # of the match
        self.odds = Odds(odds)

    @property
    def reply(self) -> list[int]:
        """The tokens of the reply, after a few of the prompt."""
        return self._recent[max(0, self._num_before - _LONG) :]

    @property
    def reply_position(self) -> int:
        """Where `reply` begins in the sequence."""
        return self._prompt.size - min(self._num_before, _LONG)

    def append(self, token: int) -> None:
        """The reply goes on with this token. Counts whether it was expected."""
        recent = self._recent
        if self._at is not None:
            is_right = self._expected(1) == [token]
            self.odds.saw(self.length, is_right=is_right)
            self._at = self._at + 1 if is_right else None
            self.length += is_right
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places[tuple(recent[-_ORDER:])] = len(recent)
        recent.append(token)
        if self._at is None or not self._expected(1):
            self._look_up()

    def expected(self, most: int) -> list[int]:
        """Up to `most` tokens that followed the matching tokens where they occurred before."""
        return self._expected(most) if self._at is not None and most > 0 else []

    def draft(self, tokens: list[int], rate: float = 0.0) -> Draft:
        """A draft of the tokens that are expected."""
        return Draft(tokens, self.length, self._source(), rate)

    def _expected(self, most: int) -> list[int]:
        assert self._at is not None
        if self._is_in_log:
            return self._log.following(self._at, most)
        return self._recent[self._at : self._at + most]

    def _look_up(self) -> None:
        recent = self._recent
        self._at, self._is_in_log, self.length = None, False, 0
        at = self._places.get(tuple(recent[-_ORDER:]))
        if at is not None:
            self._at, self.length = at, self._common(at)
        found = self._log.find(recent)
        if found is not None and found.length > self.length:
            self._at, self._is_in_log, self.length = found.at, True, found.length

    def _common(self, at: int) -> int:
        recent, length = self._recent, _ORDER
        while length < min(at, LONGEST_MATCH) and recent[at - 1 - length] == recent[-1 - length]:
            length += 1
        return length

    def _source(self) -> DraftSource:
        assert self._at is not None
        if not self._is_in_log:
            return DraftSource.REPLY
        segment = self._log.segment(self._at)
        if segment.family != self._family:
            return DraftSource.OTHER
        position = segment.position + self._at - segment.start
        own = self._prompt[max(0, position - _ORDER) : position].tolist()
        return (
            DraftSource.CONVERSATION
            if own == self._log.following(self._at - len(own), len(own))
            else DraftSource.SIBLING
        )
