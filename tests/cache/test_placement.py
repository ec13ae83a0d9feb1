"""Snapshots stand where prompts are known to be resumed, and between those as close as costs little."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.cache.costs import Costs
from leftoff.cache.placement import Gaps, Placement
from leftoff.types import MessageSpan, Prompt
from tests.cache.trees import run

WIDE = 10_000  # a gap that never matters
PLACEMENT = Placement(slack=16)


def prompt(*ends: int, length: int | None = None, roles: str = "suauauaua") -> Prompt:
    """Messages with these ends, by the first letters of their roles, and a generation prompt of four tokens."""
    names = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
    starts = (0, *ends)
    messages = [MessageSpan(names[roles[i]], starts[i], end) for i, end in enumerate(ends)]
    return Prompt(run((1, length or (ends[-1] if ends else 0) + 4)), tuple(messages))


def positions(of: Prompt, resume: int = 0, shared: tuple[int, ...] = (), gap: int = WIDE) -> list[int]:
    return list(PLACEMENT.snapshot_positions(of, resume, shared, Gaps(gap, gap, gap)))


# --- named positions


def test_the_end_of_the_header() -> None:
    assert 500 in positions(prompt(500, 600))
    assert 500 in positions(prompt(200, 500, 600, roles="sdu")), "all of its messages"


def test_the_start_of_the_last_user_message() -> None:
    assert 800 in positions(prompt(500, 600, 800, 900))
    assert positions(prompt(500, 600, 800, 850, 900, roles="suuat")) == [500, 600, 900, 904], "not of a tool's"


def test_the_end_of_the_last_message_and_of_the_prompt() -> None:
    assert positions(prompt(500, 600))[-2:] == [600, 604]


def test_a_prompt_without_messages_has_its_end() -> None:
    assert positions(prompt(length=300)) == [300]


def test_the_place_where_a_prompt_leaves_a_known_path() -> None:
    assert positions(prompt(length=300), shared=(123,)) == [123, 300]


def test_what_lies_before_the_resume_point_is_past() -> None:
    assert positions(prompt(500, 600, 800, 900), resume=700) == [800, 900, 904]


# --- slack


@pytest.mark.parametrize(("mark", "expected"), [(116, [100, 300]), (117, [117, 300]), (100, [100, 300])])
def test_a_position_close_behind_the_resume_point_is_moved_there(mark: int, expected: list[int]) -> None:
    assert positions(prompt(length=300), resume=100, shared=(mark,)) == expected


def test_nothing_is_kept_after_no_tokens() -> None:
    assert positions(prompt(length=300), resume=0, shared=(10,)) == [300]


def test_a_chat_that_begins_with_the_user_has_no_header() -> None:
    assert positions(prompt(27, roles="u")) == [27, 31]


def test_the_end_of_the_messages_is_never_moved() -> None:
    assert positions(prompt(500, 510), resume=500)[-2:] == [510, 514]


# --- gaps


def test_a_long_stretch_is_cut_at_gaps_but_not_close_to_its_end() -> None:
    assert positions(prompt(length=1000), gap=300) == [300, 600, 1000]
    assert positions(prompt(length=1050), gap=300) == [300, 600, 900, 1050]
    assert positions(prompt(length=449), gap=300) == [449]
    assert positions(prompt(length=450), gap=300) == [300, 450]


def test_a_stretch_is_cut_at_a_message_where_one_is_near() -> None:
    assert positions(prompt(100, 340, 1000), gap=300)[:3] == [100, 340, 640]


@given(st.data())
def test_positions_rise_strictly_and_no_stretch_is_longer_than_a_gap_and_a_half(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 3000))
    ends = sorted(data.draw(st.sets(st.integers(1, length), max_size=9)))
    given_prompt = prompt(*ends, length=length)
    resume = data.draw(st.integers(0, length - 1))
    shared = tuple(data.draw(st.sets(st.integers(resume + 1, length), max_size=1)))
    gap = data.draw(st.integers(16, 800))
    found = positions(given_prompt, resume, shared, gap)
    assert found == sorted(set(found))
    assert found[-1] == length
    assert found[0] >= max(resume, 1)
    between = [b - a for a, b in zip((resume, *found[:-1]), found, strict=True)]
    assert max(between) < 1.5 * gap
    wanted = {given_prompt.header_end, given_prompt.last_user_start, given_prompt.messages_end, *shared}
    for each in wanted - {None}:
        assert each is not None
        assert each < resume or each in found or 0 < each - resume <= PLACEMENT.slack


# --- density follows costs


LONG = 10_000  # tokens: what is near the end is a part of it


def test_dearer_snapshots_stand_further_apart() -> None:
    costs = Costs(prefill_tokens_per_ms=10.0, save_bytes_per_ms=1e6, save_call_ms=0.0)
    fine = Placement(lone_chunk_tokens=1, chunk_tokens=1, smallest_gap=1)
    assert fine.gaps(1_000_000, costs, LONG).wide == 2000, "1 ms to copy and 1 to pause: 1 % of 2000 tokens"
    assert Placement(chunk_tokens=512).gaps(1_000_000, costs, LONG).wide == 2048, "a whole chunk of a lone prompt"
    assert Placement(overhead=0.1).gaps(1_000_000, costs, LONG).wide == 1024, "but never more than 3 %, 667 tokens"


def test_a_pause_that_costs_much_keeps_snapshots_apart() -> None:
    assert Placement().gaps(1, Costs(prefill_tokens_per_ms=10.0, cut_ms=0.1), LONG).wide < 512
    assert Placement().gaps(1, Costs(prefill_tokens_per_ms=10.0, cut_ms=8.0), LONG).wide > 2048


def test_cheap_snapshots_do_not_stand_closer_than_the_smallest_gap() -> None:
    assert Placement(smallest_gap=64).gaps(1, Costs(), LONG) == Gaps(64, 64, 64)


def test_a_large_model_on_a_gpu() -> None:
    """Figures of an H200: 8 tokens per ms, a snapshot of 52.7 MB in 1.4 ms, 2 ms for a pause between whole chunks."""
    costs = Costs(prefill_tokens_per_ms=8.0, save_bytes_per_ms=4e7, save_call_ms=0.1, cut_ms=2.0)
    gaps = Placement().gaps(52_700_000, costs, 32_768)
    assert gaps == Gaps(2048, 512, 256), "256 ms of prefill, 64 near the end, and 32 at the end"
    found = PLACEMENT.snapshot_positions(prompt(length=32_768), 0, (), gaps)
    assert len(found) == 20
    assert found[-5:] == (31_232, 31_744, 32_256, 32_512, 32_768)
    assert Placement().gaps(52_700_000, costs, 500).near > 333, "a short turn has none but at its end"


@pytest.mark.parametrize("snapshot_bytes", [4_000_000, 252_000_000, 500_000_000])
def test_a_change_near_the_end_resumes_within_a_few_hundred_tokens_however_heavy_a_snapshot_is(
    snapshot_bytes: int,
) -> None:
    costs = Costs(prefill_tokens_per_ms=8.0, save_bytes_per_ms=3e7, save_call_ms=0.1, cut_ms=5.0)
    gaps = Placement().gaps(snapshot_bytes, costs, 32_768, token_bytes=1000)
    found = PLACEMENT.snapshot_positions(prompt(length=32_768), 0, (), gaps)
    for changed in range(32_768 - 600, 32_768):
        assert changed - max(position for position in found if position <= changed) <= 700


def test_no_snapshot_before_the_end_is_dearer_than_what_it_saves() -> None:
    """With layers in RAM, every chunk of a prompt takes half a second more."""
    costs = Costs(prefill_tokens_per_ms=1.0, save_bytes_per_ms=4e7, save_call_ms=0.1, cut_ms=500.0)
    assert Placement().gaps(52_700_000, costs, 32_768).last == 512


def test_a_very_long_prompt_has_about_sixteen_in_its_middle() -> None:
    costs = Costs(prefill_tokens_per_ms=7.0, save_bytes_per_ms=4e7, save_call_ms=0.1, cut_ms=2.0)
    assert Placement().gaps(40_000_000, costs, 65_000).wide == 4096
    assert Placement().gaps(40_000_000, costs, 131_072).wide == 8192
    slow = Costs(prefill_tokens_per_ms=1.0, save_bytes_per_ms=4e7, save_call_ms=0.1, cut_ms=2.0)
    assert Placement().gaps(40_000_000, slow, 131_072).wide == 256, "8,192 would be eight seconds"


def test_snapshots_take_no_more_bytes_than_the_pages_between_them() -> None:
    costs = Costs(prefill_tokens_per_ms=8.0, save_bytes_per_ms=4e7, cut_ms=2.0)
    assert Placement().gaps(100_000_000, costs, LONG).wide == 2048
    assert Placement().gaps(100_000_000, costs, LONG, token_bytes=10_000).wide == 10_240


def test_those_near_the_end_are_paid_for_by_the_pages_of_the_whole_prompt() -> None:
    costs = Costs(prefill_tokens_per_ms=8.0, save_bytes_per_ms=4e7, cut_ms=2.0)
    new = Placement().gaps(100_000_000, costs, 2000, length=2000, token_bytes=10_000)
    grown = Placement().gaps(100_000_000, costs, 2000, length=100_000, token_bytes=10_000)
    assert grown.near < 2000 < new.near
    assert grown.wide == new.wide, "by bytes"


def test_where_ram_is_scarce_they_are_only_as_dense_as_is_cheap() -> None:
    costs = Costs(prefill_tokens_per_ms=1.0, save_bytes_per_ms=4e6, save_call_ms=0.2, cut_ms=1.0)
    assert Placement().gaps(66_000_000, costs, LONG, is_scarce=True) == Gaps(2048, 128, 128, is_scarce=True), (
        "1 % is 1770 tokens"
    )
    assert Placement().gaps(66_000_000, costs, LONG).wide == 1024, "3 % is 590"


@given(st.integers(1, 10**8), st.floats(0.001, 50.0), st.floats(0.0, 20.0), st.integers(1, 10**5))
def test_they_cost_no_more_than_a_few_percent_of_the_prefill(
    snapshot_bytes: int, rate: float, cut_ms: float, length: int
) -> None:
    costs = Costs(prefill_tokens_per_ms=rate, cut_ms=cut_ms, save_bytes_per_ms=4e6)
    gaps = Placement().gaps(snapshot_bytes, costs, length)
    assert gaps.near <= gaps.wide
    between = PLACEMENT.snapshot_positions(prompt(length=length), 0, (), gaps)[:-1]
    if gaps.near > PLACEMENT.smallest_gap:
        price_ms = costs.save_ms(snapshot_bytes) + cut_ms
        most_ms = 2.1 * PLACEMENT.most_overhead * costs.prefill_ms(length)  # 3 % near the end, and 3 % before
        num_last = (gaps.near // gaps.last).bit_length()  # those before the end stand there in any case
        assert (len(between) - num_last) * price_ms <= most_ms + price_ms


# --- what is written to disk


def test_the_end_of_a_prompt_is_written_to_disk_with_two_positions_before_it() -> None:
    found = (100, 700, 900, 1000)
    assert PLACEMENT.durable_positions(prompt(length=1000), (), found) == {700, 900, 1000}
    assert PLACEMENT.durable_positions(prompt(length=1000), (150,), found) == {100, 150, 700, 900, 1000}
    assert PLACEMENT.durable_positions(prompt(length=1000), (), (1000,)) == {1000}


def test_the_rules_of_a_project_before_moved_texts_are_written_to_disk() -> None:
    """After a restart, a compacted conversation begins as a fresh one does: with the header and these rules."""
    asked = replace(prompt(300, 900), moved_start=700)
    found = PLACEMENT.snapshot_positions(asked, 0, (), Gaps(WIDE, WIDE, WIDE))
    assert 700 in found
    assert 700 in PLACEMENT.durable_positions(asked, (), found)


# --- short prompts


def test_a_prompt_of_thirty_tokens_has_its_positions_too() -> None:
    assert positions(prompt(27, roles="u")) == [27, 31]
    assert positions(prompt(27, 36, 44, roles="uau"), resume=27) == [27, 44, 48]


# --- when bytes are short


def test_where_room_is_short_snapshots_stand_farther_apart_with_each_step_back_from_the_end() -> None:
    assert PLACEMENT.snapshot_positions(prompt(length=1000), 0, (), Gaps(400, 100, 100, is_scarce=True)) == (
        300,
        700,
        900,
        1000,
    )
    assert PLACEMENT.snapshot_positions(prompt(length=112), 0, (), Gaps(400, 100, 100, is_scarce=True)) == (112,)


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_going_back_by_some_tokens_never_reads_more_than_twice_as_many_again(length: int, gap: int) -> None:
    positions = (0, *PLACEMENT.snapshot_positions(prompt(length=length), 0, (), Gaps(gap, gap, gap, is_scarce=True)))
    for before, after in pairwise(positions):
        assert before < after
        assert after - before <= max(3 * gap, 2 * (length - before))
    assert len(positions) <= 3 + max(0, length // gap).bit_length()


def test_where_ram_is_scarce_gaps_are_as_wide_as_is_cheap_but_not_too_long_to_read_again() -> None:
    placement, costs = Placement(), Costs(prefill_tokens_per_ms=1.0, save_bytes_per_ms=1e6)
    longest = placement.scarce_replay_ms * costs.prefill_tokens_per_ms
    wide = [placement.gaps(megabytes << 20, costs, 50_000, is_scarce=True).wide for megabytes in (1, 30, 3000)]
    assert wide[0] < wide[1] <= wide[2] <= longest + placement.chunk_tokens
    assert wide[2] > longest / 2
