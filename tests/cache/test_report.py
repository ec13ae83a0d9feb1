"""Every token that was read has one reason, and the line says it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.cache.report import SHOWN_TOKENS, Knowledge, Reason, ReuseReport, explain

TOKENS = np.arange(1000, dtype=np.int32)
NOTHING = np.empty(0, np.int32)


def report(
    resume: int, known: int = 0, *, elsewhere: int = 0, lost_until: int = 0, edited: bool = False
) -> ReuseReport:
    return explain(TOKENS, resume, "RAM", Knowledge(known, elsewhere, lost_until, edited, NOTHING))


def reasons(of: ReuseReport) -> list[tuple[str, int, int]]:
    return [(part.reason.name, part.start, part.end) for part in of.rereads]


def test_new() -> None:
    assert reasons(report(0)) == [("NEW", 0, 1000)]
    assert reasons(report(600, 600)) == [("NEW", 600, 1000)]


def test_edited() -> None:
    assert reasons(report(600, 600, edited=True)) == [("EDITED", 600, 1000)]


def test_no_snapshot_here() -> None:
    assert reasons(report(600, 650)) == [("NO_SNAPSHOT", 600, 650), ("NEW", 650, 1000)]


def test_evicted() -> None:
    assert reasons(report(600, 650, lost_until=650)) == [("EVICTED", 600, 650), ("NEW", 650, 1000)]
    assert reasons(report(600, 650, lost_until=600))[0][0] == "NO_SNAPSHOT", "lost before, but reused from elsewhere"


def test_other_tenant() -> None:
    assert reasons(report(0, 0, elsewhere=700)) == [("OTHER_SALT", 0, 700), ("NEW", 700, 1000)]
    assert reasons(report(300, 300, elsewhere=200)) == [("NEW", 300, 1000)]


def test_nothing_was_read() -> None:
    whole = report(1000, 1000)
    assert whole.rereads == ()
    assert whole.computed == 0


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.booleans())
def test_the_reasons_are_a_partition_of_what_was_read(
    resume: int, known: int, elsewhere: int, lost: int, edited: bool
) -> None:
    found = report(resume, known, elsewhere=elsewhere, lost_until=lost, edited=edited)
    at = resume
    for part in found.rereads:
        assert part.start == at
        assert part.num_tokens > 0
        at = part.end
    assert at == found.prompt_tokens == 1000
    assert found.computed == sum(part.num_tokens for part in found.rereads)


def test_both_sides_of_the_difference_are_shown() -> None:
    before = np.arange(5000, 5100, dtype=np.int32)
    found = explain(TOKENS, 600, "RAM", Knowledge(650, 0, 0, True, before))
    assert found.before.tolist() == list(range(5000, 5000 + SHOWN_TOKENS))
    assert found.after.tolist() == list(range(650, 650 + SHOWN_TOKENS))


def test_what_is_shown_does_not_hold_on_to_the_prompt() -> None:
    found = report(600, 650)
    assert found.after.base is None


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (report(0), "reused 0 of 1,000 · 1,000 new"),
        (report(1000, 1000), "reused 1,000 of 1,000 from RAM"),
        (report(600, 650), "reused 600 of 1,000 from RAM · 50 no snapshot here · 350 new"),
        (report(600, 650, lost_until=650, edited=True), "reused 600 of 1,000 from RAM · 50 evicted · 350 edited"),
    ],
)
def test_the_line(found: ReuseReport, line: str) -> None:
    assert found.line() == line


def test_every_reason_has_words_of_its_own() -> None:
    assert len({reason.value for reason in Reason}) == len(Reason)
