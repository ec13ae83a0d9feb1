"""Every token that was read has one reason, and the line says it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.cache.report import SHOWN_TOKENS, Knowledge, Origin, Reason, Reuse, ReuseReport, explain
from leftoff.types import MessageSpan, Prompt

TOKENS = np.arange(1000, dtype=np.int32)
NOTHING = np.empty(0, np.int32)


def report(
    resume: int, known: int = 0, *, elsewhere: int = 0, lost_until: int = 0, found_from: int | None = None
) -> ReuseReport:
    """With `found_from`, the known text went on with other tokens, and then with the prompt's from there on."""
    changed = np.full(10, 5000, np.int32)
    before = NOTHING if found_from is None else np.concatenate([changed, TOKENS[found_from:]])
    return explain(Prompt(TOKENS), resume, "RAM", (), Knowledge(known, elsewhere, lost_until, before))


def chat(*messages: tuple[str, int, int]) -> Prompt:
    return Prompt(TOKENS, tuple(MessageSpan(*message) for message in messages))


def reasons(of: ReuseReport) -> list[tuple[str, int, int]]:
    return [(part.reason.name, part.start, part.end) for part in of.rereads]


def test_new() -> None:
    assert reasons(report(0)) == [("NEW", 0, 1000)]
    assert reasons(report(600, 600)) == [("NEW", 600, 1000)]


def test_edited() -> None:
    assert reasons(report(600, 600, found_from=700)) == [("EDITED", 600, 1000)]


def test_a_prompt_with_a_change_in_it_is_an_edit_and_one_that_goes_on_is_none() -> None:
    assert report(600, 600, found_from=700).is_edit
    assert not report(600, 600).is_edit


def test_a_prompt_that_only_begins_alike_is_new() -> None:
    assert reasons(report(600, 600, found_from=1000)) == [("NEW", 600, 1000)]
    assert reasons(report(600, 600, found_from=990)) == [("NEW", 600, 1000)], "a few tokens may be alike by chance"


def test_what_follows_an_edit_is_new_unless_it_was_known() -> None:
    before = np.concatenate([np.full(10, 5000, np.int32), TOKENS[650:800]])
    found = explain(Prompt(TOKENS), 600, "RAM", (), Knowledge(600, 0, 0, before))
    assert reasons(found) == [("EDITED", 600, 800), ("NEW", 800, 1000)]


def test_all_messages_are_known_and_only_what_asks_for_a_reply_is_new() -> None:
    prompt = chat(("user", 0, 990))
    found = explain(prompt, 990, "RAM", (), Knowledge(990, 0, 0, np.full(10, 5000, np.int32)))
    assert reasons(found) == [("NEW", 990, 1000)]


def test_little_known_text_far_behind_does_not_make_an_edit() -> None:
    before = np.concatenate([np.full(10, 5000, np.int32), TOKENS[900:]])
    assert reasons(explain(Prompt(TOKENS), 600, "RAM", (), Knowledge(600, 0, 0, before))) == [("NEW", 600, 1000)]


def test_a_reply_that_came_back_otherwise_is_edited_and_the_tool_result_behind_it_is_new() -> None:
    prompt = chat(("user", 0, 500), ("assistant", 500, 650), ("tool", 650, 995))
    before = np.full(10, 5000, np.int32)
    found = explain(prompt, 550, "RAM", (), Knowledge(600, 0, 0, before))
    assert reasons(found) == [("NO_SNAPSHOT", 550, 600), ("EDITED", 600, 650), ("NEW", 650, 1000)]
    assert reasons(explain(prompt, 700, "RAM", (), Knowledge(700, 0, 0, before))) == [("NEW", 700, 1000)]


def test_what_a_template_writes_between_two_messages_is_no_text_found_again() -> None:
    """Eleven tokens of one message and eleven of the next are in a row in both prompts."""
    before = np.concatenate([np.full(10, 5000, np.int32), TOKENS[789:811]])
    around = chat(("user", 0, 800), ("user", 800, 1000))
    assert reasons(explain(around, 785, "RAM", (), Knowledge(785, 0, 0, before))) == [("NEW", 785, 1000)]
    generation_prompt = chat(("user", 0, 700))
    assert reasons(explain(generation_prompt, 600, "RAM", (), Knowledge(600, 0, 0, before))) == [("NEW", 600, 1000)]
    inside = chat(("user", 0, 780), ("user", 780, 1000))
    assert reasons(explain(inside, 785, "RAM", (), Knowledge(785, 0, 0, before)))[0] == ("EDITED", 785, 811)


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


@given(*[st.integers(0, 1000)] * 4, st.none() | st.integers(0, 1000), st.integers(0, 1000))
def test_the_reasons_are_a_partition_of_what_was_read(
    resume: int, known: int, elsewhere: int, lost: int, found_from: int | None, num_read: int
) -> None:
    found = report(resume, known, elsewhere=elsewhere, lost_until=lost, found_from=found_from)
    at = resume
    for part in found.rereads:
        assert part.start == at
        assert part.num_tokens > 0
        at = part.end
    assert at == found.prompt_tokens == 1000
    assert found.computed == sum(part.num_tokens for part in found.rereads)
    cancelled = found.read_up_to(max(resume, num_read))
    assert cancelled.computed == sum(part.num_tokens for part in cancelled.rereads) == max(resume, num_read) - resume
    assert cancelled.reused + cancelled.computed + cancelled.unread == 1000


def test_both_sides_of_the_difference_are_shown() -> None:
    before = np.arange(5000, 5100, dtype=np.int32)
    found = explain(Prompt(TOKENS), 600, "RAM", (), Knowledge(650, 0, 0, before))
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
        (report(600, 650), "reused 600 of 1,000 from RAM · 50 past the last snapshot · 350 new"),
        (report(600, 650, lost_until=650, found_from=700), "reused 600 of 1,000 from RAM · 50 evicted · 350 edited"),
        (report(600, 600).read_up_to(700), "reused 600 of 1,000 from RAM · 100 new · 300 not read"),
    ],
)
def test_the_line(found: ReuseReport, line: str) -> None:
    assert found.line() == line


def test_every_reason_has_words_of_its_own() -> None:
    assert len({reason.value for reason in Reason}) == len(Reason)


def test_the_origins_of_any_stretch_add_up() -> None:
    reuses = (Reuse(Origin.SHARED, 0, 300), Reuse(Origin.DISK, 300, 500))
    found = explain(Prompt(TOKENS), 500, "disk", reuses, Knowledge(600, 0, 0, NOTHING))
    assert found.count(0, 1000) == {"shared": 300, "disk": 200, "past the last snapshot": 100, "new": 400}
    assert found.count(250, 650) == {"shared": 50, "disk": 200, "past the last snapshot": 100, "new": 50}
    assert found.count(700, 700) == {}
    cancelled = found.read_up_to(700)
    assert cancelled.count(0, 1000) == found.count(0, 700) | {"new": 100, "not read": 300}
