"""A fleet on paper: what is moved is found again, and the router by state waits least."""

from functools import cache

import pytest

from lab.simulate.fleet.fleet import Fleet, FleetOutcome, Play, single_machine
from lab.simulate.fleet.replica import Line
from lab.simulate.fleet.routers import ROUTERS
from lab.simulate.fleet.sessions import conversations, generate
from lab.simulate.outcome import unavoidable_tokens
from lab.simulate.trace import Request, Session, Trace
from tests.lab.simulate.traffic import BLOCK_TOKENS, CELL_BYTES, HEADER_BLOCKS, LLM, recording, request, traffic

RAM = 40 * CELL_BYTES + 12 * LLM.snapshot_bytes
LINE = Line(bytes_per_s=1e9, latency_s=0.001)


def sessions() -> list[Session]:
    """Conversations over one header, each with its own copies: 24 of them, 8 at a time."""
    recorded: dict[int, list[Request]] = {}
    for each in traffic(seed=4, num_requests=60).requests:
        recorded.setdefault(each.session, []).append(each)
    return generate(recording(*recorded.values()), num_lanes=8, num_sessions=24)


@cache
def played(router: str, line: Line | None) -> FleetOutcome:
    """The same each time: what several tests look at is played once."""
    return Play(sessions(), BLOCK_TOKENS, LLM, Fleet(4, router, RAM, line)).run()


@cache
def computed_by_one_machine() -> int:
    return single_machine(sessions(), BLOCK_TOKENS, LLM, Fleet(4, "leftoff", RAM, LINE))


def test_copies_of_a_session_share_its_header_alone() -> None:
    made = sessions()
    first, *others = made
    again = next(each for each in others if [r.prompt_tokens for r in each] == [r.prompt_tokens for r in first])
    one, other = first[-1].blocks(), again[-1].blocks()
    assert (one == other).tolist() == [True] * HEADER_BLOCKS + [False] * (one.size - HEADER_BLOCKS)


def test_prompts_that_go_on_from_another_are_one_conversation() -> None:
    paths = [[1, 2], [1, 5], [1, 2, 3], [1, 5, 6], [9], [1, 2, 3, 4]]
    found = conversations([request(path, time) for time, path in enumerate(paths)])
    assert [[each.blocks().tolist() for each in session] for session in found] == [
        *([[1, 2], [1, 2, 3], [1, 2, 3, 4]], [[1, 5], [1, 5, 6]], [[9]]),
    ]


@pytest.mark.parametrize("router", ROUTERS)
def test_with_a_store_no_router_has_prompts_read_again(router: str) -> None:
    outcome = played(router, LINE)
    assert outcome.num_requests == sum(map(len, sessions()))
    assert outcome.computed_tokens <= 1.05 * computed_by_one_machine()


def test_without_a_store_going_round_reads_more() -> None:
    assert played("round-robin", None).computed_tokens > 1.2 * played("leftoff", None).computed_tokens


def test_no_fleet_computes_less_than_what_is_unavoidable() -> None:
    requests = sorted((r for session in sessions() for r in session), key=lambda r: r.time_s)
    assert played("leftoff", LINE).computed_tokens >= unavoidable_tokens(Trace(BLOCK_TOKENS, requests))


def test_the_router_by_state_waits_least() -> None:
    outcomes = {router: played(router, LINE) for router in ("leftoff", "round-robin", "affinity", "prefix-text")}
    ours = outcomes.pop("leftoff")
    assert all(ours.ttft_mean_ms < other.ttft_mean_ms for other in outcomes.values())
