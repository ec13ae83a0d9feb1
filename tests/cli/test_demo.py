"""`leftoff demo`: that it shows what it measured, and that it fails when the cache does not help."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from leftoff.cli.demo import Measured, Outcome, draw_bar, failures, praise
from leftoff.cli.main import main
from leftoff.cli.talk import ReplyOptions, TimedReply, _local_turn
from leftoff.scenes import MAX_GUESTS, SCENES, Step, guest_list, make_scenes
from leftoff.server.reply.stream import ReplyStream
from tests.factory import model_path

Capture = pytest.CaptureFixture[str]

NUM_STEPS = sum(len(scene.steps) for scene in SCENES)
_BAR = re.compile(r"      (off|on) +█*[▏▎▍▌▋▊▉]? [\d,.]+ m?s  (?:reused ([\d,]+), )?read ([\d,]+)")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same scenes with a shorter list and shorter replies: full ones take too long for a test.

    The clock is the work: a millisecond for every token that is read. A busy machine may be late with either reply.
    """

    def timed_by_work(reply: ReplyStream) -> TimedReply:
        turn = _local_turn(reply)
        return replace(turn, first_token_ms=1.0 + (turn.prompt_tokens or 0) - (turn.reused or 0))

    monkeypatch.setattr("leftoff.cli.demo.SCENES", make_scenes(4))
    monkeypatch.setattr("leftoff.cli.demo._OPTIONS", ReplyOptions(temperature=0, max_tokens=12))
    monkeypatch.setattr("leftoff.cli.talk._local_turn", timed_by_work)
    monkeypatch.delenv("LEFTOFF_MODEL", raising=False)


def number(text: str | None) -> int:
    return int((text or "0").replace(",", ""))


def test_every_step_has_two_bars_and_the_cache_helps(capsys: Capture) -> None:
    assert main(["demo", "--threads", "1", "--disk", "64"]) == 0
    output = capsys.readouterr()
    bars = [match for match in map(_BAR.fullmatch, output.out.splitlines()) if match]
    assert [bar[1] for bar in bars] == ["off", "on"] * NUM_STEPS
    for off, on in zip(bars[::2], bars[1::2], strict=True):
        assert number(off[2]) == 0, "what has forgotten reuses nothing"
        shown = number(on[2]) + number(on[3])
        # Each goes on from its own replies: where two words are as likely, these may differ by some tokens.
        assert abs(number(off[3]) - shown) <= 0.1 * shown, "both were shown the same prompt"
    for scene in SCENES:
        assert output.out.count(scene.title) == 2, "in the chart and in the summary"
    assert "The cache helped in every scene." in output.out
    assert "Your name is Clara" in output.out, "what was said before the last turn is remembered"
    assert "\x1b" not in output.out
    assert "FAILED" not in output.err


def test_without_memory_it_fails_and_says_where(capsys: Capture) -> None:
    assert main(["demo", str(model_path("qwen35")), "--threads", "1", "--ram", "0", "--disk", "0"]) == 1
    output = capsys.readouterr()
    assert "The cache helped" not in output.out
    failed = re.findall(r"^leftoff: FAILED: the cache did not help in scene (\d)", output.err, re.MULTILINE)
    assert failed == ["2", "3", "4"], "the first goes on in its slot; the others need what was kept"
    assert "Edit an old message, then come back: edit turn 2: it reused 0 of" in output.err
    assert "Restart" not in output.out, "without a disk there is nothing to show"


STEP = Step("turn 2", "desk", "What is my name?")


def outcome(step: Step, *, off_ms: float, on_ms: float, reused: int) -> Outcome:
    off, on = TimedReply("Clara.", off_ms, 100, 0), TimedReply("Clara.", on_ms, 100, reused)
    return Outcome(SCENES[0], [Measured(step, off, on)])


def test_a_cache_that_reuses_and_is_no_faster_fails() -> None:
    (failure,) = failures([outcome(STEP, off_ms=50, on_ms=60, reused=90)])
    assert failure.endswith("the first token came after 60 ms with the cache, after 50 ms without")


def test_a_cache_that_reuses_little_fails_however_fast_it_was() -> None:
    (failure,) = failures([outcome(STEP, off_ms=50, on_ms=10, reused=50)])
    assert failure.endswith("turn 2: it reused 50 of 100 tokens")


def test_praise_names_medians_of_what_had_been_seen() -> None:
    first = outcome(replace(STEP, is_first_sight=True), off_ms=500, on_ms=500, reused=0)
    second = outcome(STEP, off_ms=500, on_ms=10, reused=90)
    text = praise([Outcome(SCENES[0], [*first.measured, *second.measured])])
    assert "after 10 ms instead of 500 ms: 50 times sooner" in text
    assert text.endswith("The replies are the same in 2 of 2 cases.")


def test_a_longer_time_has_a_longer_bar_and_the_shortest_is_seen() -> None:
    shares = (0, 0.001, 0.01, 0.1, 0.5, 1, 1.2, 50)
    widths = [len(draw_bar(share)) for share in shares]
    assert widths[0] == 1
    assert all(short <= long for short, long in pairwise(widths))
    assert widths[-1] == 40


def test_every_guest_and_every_room_is_there_once() -> None:
    rows = [line.split("; ") for line in guest_list(MAX_GUESTS, "intro").splitlines()[2:]]
    assert len(rows) == MAX_GUESTS
    assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == MAX_GUESTS


def test_whoever_is_asked_about_is_on_the_list() -> None:
    system = ""
    for scene in SCENES:
        system = scene.system or SCENES[0].system
        for step in scene.steps:
            asked = re.search(r"of (\w+ \w+)\?", step.question)
            assert asked is None or f"guest: {asked[1]};" in system
