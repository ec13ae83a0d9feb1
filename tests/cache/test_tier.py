"""What is dropped on request is gone with all that follows it, and nothing else is."""

import pytest

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.budget import ByteBudget
from leftoff.cache.tier import Tier
from tests.cache.trees import UNLIMITED, Clock, page, snapshot, text

HEADER = "header, "
TEXTS = (HEADER, HEADER + "one", HEADER + "one, more", HEADER + "two")


@pytest.fixture
def tier() -> Tier:
    tier = Tier(ByteBudget("RAM", UNLIMITED, LeastRecentlyUsed(), Clock()), Clock())
    for namespace in ("mine", "other"):
        for letters in TEXTS:
            match = tier.insert(namespace, text(letters))
            tier.budget.add_point(match, len(letters), snapshot(len(letters)))
            tier.budget.add_page(match, page(0, len(letters)))
    return tier


def kept(tier: Tier, namespace: str = "mine") -> list[str]:
    tier.check_integrity()
    matches = {letters: tier.match(namespace, text(letters)) for letters in TEXTS}
    return [letters for letters, match in matches.items() if match.point_at(len(letters)) is not None]


@pytest.mark.parametrize(
    ("letters", "start", "left"),
    [
        (HEADER + "one", len(HEADER), [HEADER, HEADER + "two"]),
        (HEADER + "one, more", len(HEADER + "one"), [HEADER, HEADER + "one", HEADER + "two"]),
        (HEADER + "two", len(HEADER + "two"), [*TEXTS]),
        (HEADER, 0, []),
        (HEADER + "three", 0, [*TEXTS]),
    ],
)
def test_what_follows_a_position_of_a_path_is_dropped(tier: Tier, letters: str, start: int, left: list[str]) -> None:
    tier.drop("mine", text(letters), start)
    assert kept(tier) == left
    assert kept(tier, "other") == [*TEXTS]
