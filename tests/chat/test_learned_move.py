"""A move is found where two headers differ in few short places, and takes text out of that header alone."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.learned_move import LearnedMove, Parted, find_move

RULES = "".join(f"Rule {number}: keep lamp number {number} lit.\n" for number in range(60))
MAX_STRETCHES = 3


def header(changing: str) -> str:
    return f"You are a pilot.\n\n{changing}\n{RULES}"


def found(old: str, new: str, tools: int = 0) -> LearnedMove | None:
    return find_move("", (old,), (new,), tools)


def parted(move: LearnedMove | None, text: str) -> Parted:
    assert move is not None
    result = move.part((text,))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ("Mood: calm\n", "Mood: wild\n", "Mood: none at all\n"),
        ("Day: 2026-01-02\n", "Day: 2026-01-03\n", "Day: 1\nNight: 2\n"),
        ("Log:\na1\nb2\nc3\n", "Log:\nz0\na1\nb2\n", "Log:\ny9\n"),
        ("Log:\na1\nb2\n", "Log:\nc3\n", "Log:\n\n\n"),
    ],
)
def test_lines_that_change_are_taken_out(old: str, new: str, other: str) -> None:
    move = found(header(old), header(new))
    rests = {parted(move, header(text)).rest for text in (old, new, other)}
    assert len(rests) == 1
    (rest,) = rests.pop()
    assert rest.startswith("You are a pilot.\n\n")
    assert rest.endswith(RULES)
    for text in (old, new, other):
        (value,) = parted(move, header(text)).values
        assert value.strip()[-2:] == text.strip()[-2:] or not value.strip()


def test_the_rest_must_be_the_same_to_the_letter() -> None:
    move = found(header("Mood: calm\n"), header("Mood: wild\n"))
    assert move is not None
    for other in (
        header("Mood: mild\n") + "One more.",
        header("Mood: mild\n").replace("Rule 50", "Rule 0"),
        header("Mood: mild\n").replace("You are a pilot.", "You are a cook."),
        header(f"Mood: {'very ' * 2000}mild\n"),
        RULES,
    ):
        assert move.part((other,)) is None
        assert move.part((other, "x")) is None


def test_three_places_are_moved_and_four_are_not() -> None:
    def text(number: int, places: int) -> str:
        return "".join(f"{RULES}Here {place}: {number}\n" for place in range(places)) + RULES

    unique = [text.replace("Rule", f"Rule {part}") for part, text in enumerate([RULES] * 5)]
    three, four = (
        ["".join(f"{unique[place]}Here {place}: {value}\n" for place in range(places)) + unique[-1] for value in (1, 2)]
        for places in (MAX_STRETCHES, MAX_STRETCHES + 1)
    )
    move = found(three[0], three[1])
    assert move is not None
    assert len(move.stretches) == MAX_STRETCHES
    assert parted(move, three[0]).values == tuple(f"Here {place}: 1\n" for place in range(MAX_STRETCHES))
    assert found(four[0], four[1]) is None
    assert found(text(1, 2), text(2, 2)) is None, "nothing that occurs once stands around them"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "A line that was added\n"),
        ("A line that was removed\n", ""),
        ("x" * 2000 + "\n", "y" * 2000 + "\n"),
        ("".join(f"old {number}\n" for number in range(200)), "new\n"),
    ],
)
def test_text_that_came_or_went_or_is_long_is_no_value(old: str, new: str) -> None:
    assert found(header(old), header(new)) is None


def test_lines_that_came_and_went_far_apart_are_no_list() -> None:
    assert found(header("Came\nStays\n\nA\n"), header("Stays\n\nA\nWent\n")) is None, "a blank line between"
    long = "".join(f"Stays {number}\n" for number in range(17))
    assert found(header(f"Came\n{long}"), header(f"{long}Went\n")) is None
    assert found(header(f"Came\n{long[8:]}"), header(f"{long[8:]}Went\n")) is not None


def test_words_that_stand_there_twice_are_told_apart_by_more_of_them() -> None:
    twice = "x" * 80 + "\n"
    old, new = (f"One.\n{twice}Two.\n{twice}Mood: {mood}\n{RULES}" for mood in ("calm", "wild"))
    move = found(old, new)
    assert parted(move, new).values == ("Mood: wild\n",)


def test_the_first_line_is_moved_only_if_it_has_a_number() -> None:
    assert found(f"You are a pilot.\n{RULES}", f"You are a cook.\n{RULES}") is None
    assert found(f"It is 2026-01-02.\n{RULES}", f"It is 2026-01-03.\n{RULES}") is not None


def test_what_has_little_behind_it_stays() -> None:
    old, new = (f"{RULES}Mood: {mood}\nBye." for mood in ("calm", "wild"))
    assert found(old, new) is None
    assert found(old, new, tools=1000) is not None, "the tools stand behind it"


def test_values_that_take_turns_are_told_from_values_that_change() -> None:
    def takes_turns(*moods: str) -> bool:
        first, second, *others = (header(f"Mood: {mood}\n") for mood in moods)
        move = found(first, second)
        assert move is not None
        for text in others:
            move.saw(parted(move, text).values)
        return move.stretches[0].takes_turns

    assert takes_turns(*"abab")
    assert takes_turns(*"abcabc")
    assert not takes_turns(*"aab"[1:], *"bbbb")
    assert not takes_turns(*"abacadae"), "a state that others come back to"
    assert not takes_turns(*"abcdefabcdef"), "too many to have a header each"


LINES = st.lists(st.text("ab \t", max_size=4).map(lambda text: text + "\n"), max_size=12).map("".join)


@settings(deadline=None, max_examples=200)
@given(st.lists(LINES, min_size=2, max_size=2, unique=True), LINES, LINES)
def test_whatever_is_taken_out_is_all_that_differs(values: list[str], before: str, after: str) -> None:
    """Also where lines repeat: both parts together are the header, and without its values it is the same."""
    old, new = (f"{before}First.\n{value}Last.\n{after}{RULES}" for value in values)
    move = found(old, new)
    if move is not None:
        for text in (old, new):
            rest, taken = parted(move, text)
            assert rest == parted(move, old).rest
            assert len(rest[0]) + len("".join(taken)) == len(text)
            assert all(value in text for value in taken)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_headers_that_differ_in_many_places_teach_nothing(data: st.DataObject) -> None:
    """More places than a move has, with lines that stay between them."""
    lines = [f"Line {number} stays.\n" for number in range(200)]
    places = data.draw(st.lists(st.integers(0, 198), min_size=MAX_STRETCHES + 1, max_size=40, unique=True))
    apart = sorted({place // 4 * 4 for place in places})
    words = st.text("xyz019", min_size=1, max_size=20)
    if len(apart) > MAX_STRETCHES:
        changed = [*lines]
        for place in apart:
            changed[place] = f"{data.draw(words)} is new.\n"
        assert found("".join(lines), "".join(changed)) is None


def test_a_hostile_header_takes_no_longer_than_its_lines() -> None:
    """Lines that all repeat, and lines that all differ: the time grows with them, not with their square."""

    def seconds(size: int) -> float:
        texts = ["ab\n" * size + "\n", "ba\n" * size, "".join(f"{n}\n" for n in range(size)), "a\nb\n" * (size // 2)]
        began = time.thread_time()
        for old in texts:
            for new in texts:
                found(old, new)
        return time.thread_time() - began

    seconds(1000)
    assert seconds(16_000) < 64 * max(seconds(1000), 1e-3)
