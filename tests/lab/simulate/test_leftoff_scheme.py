"""The server's own cache under a trace."""

import pytest

from lab.simulate.leftoff_scheme import OwnCache
from lab.simulate.llm import Llm
from lab.simulate.outcome import play, unavoidable_tokens
from lab.simulate.scheme import Budget
from leftoff.cache.policy import ValuePerByte
from tests.lab.simulate.traffic import BLOCK_TOKENS, CELL_BYTES, HEADER_BLOCKS, LLM, request, traffic

TIGHT = Budget(12 * CELL_BYTES + 4 * LLM.snapshot_bytes)


def cache(budget: Budget, llm: Llm = LLM) -> OwnCache:
    return OwnCache(llm, BLOCK_TOKENS, budget, ValuePerByte)


@pytest.mark.parametrize("seed", range(3))
def test_the_more_room_the_less_is_read(seed: int) -> None:
    trace = traffic(seed)
    read = [play(trace, cache(Budget(factor * TIGHT.ram_bytes)), LLM).computed_tokens for factor in (1, 4, 1000)]
    assert read[0] > read[1] > read[2]
    assert read[2] <= 1.3 * unavoidable_tokens(trace), "only what was changed near an end is read again"


@pytest.mark.parametrize("seed", range(3))
def test_a_disk_makes_up_for_little_ram(seed: int) -> None:
    trace = traffic(seed)
    without, beside = (play(trace, cache(budget), LLM) for budget in (TIGHT, Budget(TIGHT.ram_bytes, 1 << 40)))
    assert beside.computed_tokens < 0.8 * without.computed_tokens


def test_attention_alone_is_resumed_anywhere() -> None:
    trace, llm = traffic(1), Llm("attention", 10, 0)
    assert play(trace, cache(Budget(1 << 40), llm), llm).computed_tokens == unavoidable_tokens(trace)


def test_what_is_loaded_is_counted_where_it_lies() -> None:
    own = cache(Budget(1 << 40, 1 << 40))
    first, other = request(list(range(10))), request(list(range(50, 60)), 1.0)
    path_bytes = 10 * CELL_BYTES + LLM.snapshot_bytes
    served = [own.serve(each, each.blocks()) for each in (first, other, first)]
    assert [(each.resumed, each.ram_bytes, each.disk_bytes) for each in served] == [
        *((0, 0, 0), (0, 0, 0), (10, path_bytes, 0)),
    ]
    own.cache.ram.clear(lambda _: True)
    longer = request(list(range(50, 63)), 2.0)
    from_disk = own.serve(longer, longer.blocks())
    assert (from_disk.resumed, from_disk.disk_bytes) == (10, path_bytes)


def test_a_header_is_known_from_the_first_request_on() -> None:
    own = cache(Budget(1 << 40))
    header = list(range(HEADER_BLOCKS))
    first, second = request([*header, 50, 51]), request([*header, 60, 61], 1.0)
    assert [own.serve(each, each.blocks()).resumed for each in (first, second)] == [0, HEADER_BLOCKS]
