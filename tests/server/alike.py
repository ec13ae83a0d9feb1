"""Whether two replies come from the same state, told by what rounding cannot tip.

Which token comes is no measure: where two are almost as likely, rounding decides, and it is another on another machine
and beside other requests. The chances themselves move by no more than rounding, as long as both have said the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

NUM_TOP = 5
_LIKELY = 3.0  # no further behind the likeliest token: of others only the order of size is certain

Chances = Mapping[Any, float]  # log-probabilities of the likeliest tokens


class Reply(Protocol):
    @property
    def tokens(self) -> Sequence[Any]: ...
    @property
    def top(self) -> Sequence[Chances]: ...


@dataclass(frozen=True)
class Said:
    """The tokens of a reply, and the chances at the place of each."""

    tokens: Sequence[Any]
    top: Sequence[Chances]

    def after(self, num_tokens: int) -> "Said":
        return Said(self.tokens[num_tokens:], self.top[num_tokens:])


def difference(one: Reply, other: Reply) -> float:
    """The largest between their chances, up to the first place where they say something else."""
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    common = next((at for at, (left, right) in pairs if left != right), len(one.tokens))
    places = [*zip(one.top, other.top, strict=False)][: common + 1]
    assert places, "nothing was said"
    return max(_between(left, right) for left, right in places)


def _between(one: Chances, other: Chances) -> float:
    return max(_missed(one, other), _missed(other, one))


def _missed(one: Chances, other: Chances) -> float:
    """A token that the other does not list is less likely there than all those listed."""
    likely = {token: chance for token, chance in one.items() if chance > max(one.values()) - _LIKELY}
    least = min(other.values())
    return max(
        abs(chance - other[token]) if token in other else max(0.0, chance - least) for token, chance in likely.items()
    )
