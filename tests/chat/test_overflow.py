"""A conversation that outgrows the window is refused with both numbers, or cut once and then left alone."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.chat import check_fits
from leftoff.chat.overflow import ContextOverflowError, Cutter, possible_cuts
from leftoff.chat.template.render import MessageDict
from leftoff.types import Prompt
from tests.chat.conversations import RULES, assistant, call, result, user

WINDOW = 1000


def make(messages: Sequence[MessageDict]) -> Prompt:
    """A token for every character, as if the template were the simplest of all."""
    text = "".join(f"[{m['role']}]{m['content'] or ''}{m.get('tool_calls') or ''}" for m in messages)
    return Prompt(np.frombuffer(text.encode("utf-32-le"), np.int32))


def turn(number: int, size: int = 40) -> list[MessageDict]:
    return [user(f"Question {number}. ".ljust(size, "?")), assistant(f"Answer {number}. ".ljust(size, "!"))]


def step(number: int, size: int = 40) -> list[MessageDict]:
    text = f"Found {number}. ".ljust(size, ".")
    return [assistant("", tool_calls=[call(number, "look", "{}")]), result(number, text)]


def common(left: Prompt, right: Prompt) -> int:
    size = min(left.length, right.length)
    differs = np.nonzero(left.tokens[:size] != right.tokens[:size])[0]
    return int(differs[0]) if differs.size else size


def test_by_default_both_numbers_are_named() -> None:
    prompt = make([user("x" * 2000)])
    with pytest.raises(ContextOverflowError, match="the prompt has 2,006 tokens and the context holds 1,000") as error:
        check_fits(prompt, WINDOW)
    assert (error.value.prompt_tokens, error.value.context_tokens) == (2006, 1000)


def test_one_token_must_be_left_for_the_reply() -> None:
    check_fits(make([user("x" * (WINDOW - 7))]), WINDOW)
    with pytest.raises(ContextOverflowError):
        check_fits(make([user("x" * (WINDOW - 6))]), WINDOW)


def test_what_fits_is_not_touched() -> None:
    fitted = Cutter(WINDOW).fit([RULES, *turn(1), user("More?")], make, "")
    assert fitted.notes == ()
    assert fitted.prompt.length == make([RULES, *turn(1), user("More?")]).length


def test_a_conversation_is_cut_once_and_grows_again() -> None:
    """Between two cuts every turn adds text, and changes none; a cut leaves at most half the window."""
    cutter = Cutter(WINDOW)
    messages: list[MessageDict] = [RULES]
    last: Prompt | None = None
    changed_turns = []
    for number in range(60):
        fitted = cutter.fit([*messages, *turn(number)[:1]], make, "")
        assert fitted.prompt.length < WINDOW
        if last is not None and common(last, fitted.prompt) < last.length:
            changed_turns.append(number)
            assert fitted.prompt.length <= WINDOW // 2
        messages += turn(number)
        last = fitted.prompt
    # A turn has about 97 tokens and a cut frees 500 or more: one in five turns is read anew, not every one.
    assert 8 <= len(changed_turns) <= 13
    assert min(np.diff(changed_turns)) >= 4


def test_each_cut_keeps_the_header_and_the_last_question_and_says_so() -> None:
    cutter = Cutter(WINDOW)
    messages = [RULES, *(message for number in range(20) for message in turn(number)), user("And now?")]
    first, again = (cutter.fit(messages, make, "") for _ in range(2))
    text = first.prompt.tokens.tobytes().decode("utf-32-le")
    assert text.startswith(f"[system]{RULES['content']}[user]Question ")
    assert text.endswith("[user]And now?")
    (note,), (later,) = first.notes, again.notes
    assert note.kind == later.kind == "cut"
    assert f"{make(messages).length:,} tokens do not fit in 1,000, {first.prompt.length:,} do" in str(note)
    assert "left out from now on" in str(note)
    assert "still left out" in str(later)
    assert first.prompt.tokens.tolist() == again.prompt.tokens.tolist()


def test_one_long_turn_keeps_its_question_and_stays_stable() -> None:
    """An agent works for hundreds of steps on one question; then it is asked another."""
    cutter = Cutter(WINDOW)
    messages = [RULES, user("Find the ship.")]
    last, cuts = make(messages), 0
    for number in range(40):
        messages += step(number)
        if number == 30:
            messages += [assistant("Found it."), user("And the boat?")]
        prompt = cutter.fit(messages, make, "").prompt
        text = prompt.tokens.tobytes().decode("utf-32-le")
        assert ("Find the ship." in text) or number >= 30
        assert number < 30 or "And the boat?" in text
        cuts += common(last, prompt) < last.length
        last = prompt
    assert 4 <= cuts <= 14


def test_calls_and_their_results_stay_together() -> None:
    messages = [RULES, user("Find."), *(m for n in range(9) for m in step(n)), user("Go on."), *step(9), *step(10)]
    for cut in possible_cuts(messages):
        kept = cut.apply(messages)
        assert kept[0] == RULES
        assert kept[1]["role"] == "user"
        calls = {one["id"] for message in kept for one in message.get("tool_calls") or ()}
        assert calls == {message["tool_call_id"] for message in kept if message["role"] == "tool"}
        assert any(message["content"] == "Go on." for message in kept)


def test_what_cannot_be_cut_is_refused() -> None:
    cutter = Cutter(WINDOW)
    for messages in ([RULES, user("x" * 2000)], [RULES, *turn(1), user("x" * 2000)], [RULES, assistant("x" * 2000)]):
        with pytest.raises(ContextOverflowError, match=r"the context holds 1,000: even its header and last"):
            cutter.fit(messages, make, "")


def test_more_than_half_is_kept_if_nothing_smaller_is_possible() -> None:
    fitted = Cutter(WINDOW).fit([RULES, *turn(1), *turn(2, 200), user("x" * 700)], make, "")
    assert WINDOW // 2 < fitted.prompt.length < WINDOW


def test_a_branch_that_fits_is_not_cut() -> None:
    cutter = Cutter(WINDOW)
    messages = [RULES, *(message for number in range(20) for message in turn(number)), user("And now?")]
    cutter.fit(messages, make, "")
    shorter = [*messages[:9], user("Another question")]
    assert cutter.fit(shorter, make, "").prompt.length == make(shorter).length


def test_a_cut_is_the_conversations_own() -> None:
    """Another tenant, or another conversation, may be cut elsewhere; a changed header changes nothing."""
    cutter = Cutter(WINDOW)
    messages = [RULES, *(message for number in range(12) for message in turn(number)), user("And now?")]
    grown = [*messages, *turn(12), user("And then?")]
    cutter.fit(messages, make, "a")
    assert "still left out" in str(cutter.fit(grown, make, "a").notes[0])
    assert "from now on" in str(cutter.fit(grown, make, "b").notes[0])
    assert "still left out" in str(cutter.fit([RULES, *grown], make, "a").notes[0])


def test_the_memory_is_bounded() -> None:
    cutter = Cutter(WINDOW, remembered=2)
    conversations = [
        [user(f"Conversation {number}"), *(message for n in range(20) for message in turn(n)), user("And now?")]
        for number in range(3)
    ]
    for conversation in conversations:
        cutter.fit(conversation, make, "")
    assert "still left out" in str(cutter.fit(conversations[2], make, "").notes[0])
    assert "from now on" in str(cutter.fit(conversations[0], make, "").notes[0])


steps = st.builds(step, st.integers(0, 99), st.integers(1, 200))
turns = st.builds(turn, st.integers(0, 99), st.integers(1, 200))


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(steps | turns, max_size=30))
def test_whatever_the_conversation_it_fits_and_the_rest_is_stable(parts: list[list[MessageDict]]) -> None:
    cutter = Cutter(WINDOW)
    messages = [RULES, user("Begin.")]
    for part in parts:
        messages += part
        fitted = cutter.fit(messages, make, "")
        assert fitted.prompt.length < WINDOW
        assert cutter.fit(messages, make, "").prompt.tokens.tolist() == fitted.prompt.tokens.tolist()
        assert bool(fitted.notes) == (make(messages).length >= WINDOW)
