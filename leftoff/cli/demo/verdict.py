"""Whether the cache helped, scene by scene. A demonstration that cannot fail shows nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from leftoff.cli.demo.play import Measured
from leftoff.cli.demo.scenes import Scene
from leftoff.cli.units import show_ms

_NEAR_TIE = "where two words are almost as likely, it matters in which batches the prompt was read"


@dataclass(frozen=True)
class Outcome:
    """A scene that was played."""

    scene: Scene
    measured: Sequence[Measured]

    @property
    def off_ms(self) -> float:
        return sum(one.off.first_token_ms for one in self.measured)

    @property
    def on_ms(self) -> float:
        return sum(one.on.first_token_ms for one in self.measured)

    @property
    def seen_before(self) -> list[Measured]:
        """The steps at which the cache has to help."""
        return [one for one in self.measured if not one.step.is_first_sight]

    @property
    def failure(self) -> str:
        """What went wrong, if the cache did not help."""
        for one in self.seen_before:
            if not one.is_reused:
                return f"{one.step.label}: it reused {one.on.reused or 0:,} of {one.on.prompt_tokens or 0:,} tokens"
        off, on = _medians(self.seen_before)
        if on >= off:
            return f"the first token came after {show_ms(on)} with the cache, after {show_ms(off)} without"
        return ""


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"the cache did not help in scene {number}, {outcome.scene.title}: {outcome.failure}"
        for number, outcome in enumerate(outcomes, 1)
        if outcome.failure
    ]


def praise(outcomes: Sequence[Outcome]) -> str:
    """To be said if nothing failed."""
    everything = [one for outcome in outcomes for one in outcome.measured]
    off, on = _medians([one for outcome in outcomes for one in outcome.seen_before])
    num_same = sum(one.is_same_reply for one in everything)
    return (
        f"The cache helped in every scene. What had been read once was answered after {show_ms(on)} instead of "
        f"{show_ms(off)}: {off / on:.0f} times sooner (medians). "
        f"The replies are the same in {num_same} of {len(everything)} cases"
        + (f": {_NEAR_TIE}." if num_same < len(everything) else ".")
    )


def _medians(measured: Sequence[Measured]) -> tuple[float, float]:
    return median(one.off.first_token_ms for one in measured), median(one.on.first_token_ms for one in measured)
