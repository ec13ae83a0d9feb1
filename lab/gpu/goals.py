"""What is to be reached, measure by measure, on an H200 with the random 8 B hybrid and prompts of 32,768 tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Values = Sequence[float]


@dataclass(frozen=True)
class Goal:
    """`is_reached` looks at leftoff's values and llama-server's; None where they do not tell."""

    text: str
    is_reached: Callable[[Values, Values], bool | None]


def at_most(limit: float, unit: str = "ms") -> Goal:
    """None of the values is above it."""
    return Goal(f"≤ {limit:g} {unit}", lambda ours, _: max(ours) <= limit if ours else None)


def times_as_fast(ratio: float) -> Goal:
    """Of rates: the median over llama-server's."""
    return Goal(
        f"≥ {ratio:g} times llama-server",
        lambda ours, theirs: median(ours) >= ratio * median(theirs) if ours and theirs else None,
    )


def each_within(ratio: float) -> Goal:
    """Of times: each over llama-server's own at that place."""

    def is_reached(ours: Values, theirs: Values) -> bool | None:
        if not ours or len(ours) != len(theirs):
            return None
        return all(own <= ratio * other for own, other in zip(ours, theirs, strict=True))

    return Goal(f"each ≤ {ratio:g} times llama-server", is_reached)


def median_within(ratio: float) -> Goal:
    """Of times: the median over llama-server's."""
    return Goal(
        f"≤ {ratio:g} times llama-server",
        lambda ours, theirs: median(ours) <= ratio * median(theirs) if ours and theirs else None,
    )


def each_below(limits: Values, text: str) -> Goal:
    """Each value has a limit of its own."""
    return Goal(text, lambda ours, _: all(own <= limit for own, limit in zip(ours, limits, strict=True)))


def median_below(limit: float, text: str) -> Goal:
    """Of times: the median is not above it."""
    return Goal(f"{text}: {limit:.0f} ms", lambda ours, _: median(ours) <= limit if ours else None)


def no_slower_than_peer(unless_ms: float = 0.0) -> Goal:
    """Of times: the median is not above llama-server's, or else not above `unless_ms`."""
    text = f"≤ llama-server or {unless_ms:g} ms" if unless_ms else "≤ llama-server"
    return Goal(text, lambda ours, theirs: median(ours) <= max(unless_ms, median(theirs)) if ours and theirs else None)


def told(is_reached: bool, text: str) -> Goal:
    """Of something that is not among the values."""
    return Goal(text, lambda *_: is_reached)


def all_of(*goals: Goal) -> Goal:
    """Missed if one of them is missed, and reached if all are reached."""

    def is_reached(ours: Values, theirs: Values) -> bool | None:
        found = [goal.is_reached(ours, theirs) for goal in goals]
        return False if False in found else None if None in found else True

    return Goal("; ".join(goal.text for goal in goals), is_reached)


DECODE = {1: times_as_fast(1.06), 8: times_as_fast(1.68), 16: times_as_fast(1.99)}
SAMPLED = {16: times_as_fast(1.5)}
COLD = each_within(1.05)
RAM_PER_KV = at_most(2.5, "times its KV")
FROM_RAM = at_most(80)
PARKED = at_most(35)
SAME = at_most(20)
EDIT_NEAR_END = at_most(150)
EDIT_ANYWHERE = at_most(400)
EXACT = at_most(0, "replies that differ")
