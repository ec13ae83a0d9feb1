"""A record: what is printed, what is written, and which goals are reached."""

import json
from pathlib import Path

import pytest

from lab.gpu import goals
from lab.gpu.record import NONE, Record, Series, read_record
from leftoff.setting import SettingError


def record(path: Path | None = None, said: list[str] | None = None) -> Record:
    say = (said if said is not None else []).append
    return Record("python -m lab.gpu", ["a machine"], "m.gguf", 512, path, say)


def test_every_row_is_printed_and_written_at_once(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "out.json"
    made = record(path, said)
    made.uses("leftoff", "leftoff serve m.gguf")
    made.add("same", "the same prompt again", "ms", Series((18.25,), (1,)), goal=goals.SAME)
    assert said == ["  the same prompt again · leftoff 18.2 ms [computed 1] · ≤ 20 ms: reached"]
    assert json.loads(path.read_text())["rows"][0]["leftoff"]["values"] == [18.25]
    again = read_record(path)
    assert again.rows == made.rows
    assert again.commands == {"leftoff": ["leftoff serve m.gguf"]}


def test_a_measure_takes_the_place_of_its_earlier_one() -> None:
    made = record()
    for title in ("one", "two"):
        made.add("cold", title, "ms", Series((1.0,)))
    made.add("cold", "one", "ms", Series((2.0,)), Series((3.0,)))
    assert [(row.title, row.leftoff.values) for row in made.rows] == [("one", (2.0,)), ("two", (1.0,))]


@pytest.mark.parametrize(
    ("goal", "ours", "theirs", "is_reached"),
    [
        (goals.FROM_RAM, (60.0, 79.0), (), True),
        (goals.FROM_RAM, (60.0, 81.0), (), False),
        (goals.DECODE[16], (200.0, 190.0, 210.0), (100.0,), True),
        (goals.DECODE[16], (198.0,), (100.0,), False),
        (goals.DECODE[16], (198.0,), (), None),
        (goals.COLD, (100.0, 105.0), (100.0, 100.0), True),
        (goals.COLD, (100.0, 100.0), (100.0, 90.0), False),
        (goals.each_below((5.0, 7.0), ""), (5.0, 7.0), (), True),
        (goals.each_below((5.0, 7.0), ""), (6.0, 5.0), (), False),
    ],
)
def test_goals(goal: goals.Goal, ours: tuple[float, ...], theirs: tuple[float, ...], is_reached: bool | None) -> None:
    assert goal.is_reached(ours, theirs) is is_reached


def test_values_are_shown_in_order_or_as_a_range() -> None:
    series = Series((5.7, 12.0, 5.2), (64, 70, 64))
    assert series.show(in_order=True) == "5.7, 12, 5.2"
    assert series.show(in_order=False) == "5.7 (5.2 … 12)"
    assert series.show_computed() == "64 … 70"
    assert NONE.show(in_order=False) == NONE.show_computed() == "-"


def test_another_file_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"rows": []}')
    with pytest.raises(SettingError, match="is no record"):
        read_record(path)
