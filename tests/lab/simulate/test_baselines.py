"""Each model of another server does what its description says, keeps to its budget, and is no better than the limit."""

import numpy as np
import pytest

from lab.simulate.baselines.llama_server import LlamaServer
from lab.simulate.baselines.marconi import marconi
from lab.simulate.baselines.optimum import Optimum
from lab.simulate.baselines.sglang import Sglang
from lab.simulate.baselines.vllm import Vllm
from lab.simulate.llm import Llm
from lab.simulate.outcome import play, unavoidable_tokens
from lab.simulate.scheme import Budget, Scheme
from lab.simulate.schemes import SCHEMES
from lab.simulate.trace import Request, Trace
from tests.lab.simulate.traffic import BLOCK_TOKENS, CELL_BYTES, LLM, request, traffic

UNLIMITED = Budget(1 << 40)
NUM_IDS = 1000


def resumed(scheme: Scheme, *requests: Request) -> list[int]:
    return [scheme.serve(each, each.blocks()).resumed for each in requests]


def run(*spans: tuple[int, int]) -> Request:
    return request([block for first, last in spans for block in range(first, last)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "optimum" and not name.endswith("-slots")])
def test_no_scheme_reads_less_than_the_limit_or_holds_more_than_its_budget(name: str, seed: int) -> None:
    trace = traffic(seed)
    budget = Budget(12 * CELL_BYTES + 4 * LLM.snapshot_bytes)
    least = play(trace, Optimum(LLM, trace, budget), LLM)
    outcome = play(trace, SCHEMES[name](LLM, trace, budget), LLM)
    assert unavoidable_tokens(trace) <= least.computed_tokens <= outcome.computed_tokens <= outcome.prompt_tokens
    assert outcome.most_bytes <= budget.nbytes


@pytest.mark.parametrize("seed", range(4))
def test_the_limit_without_a_budget_is_what_cannot_be_avoided(seed: int) -> None:
    trace = traffic(seed)
    assert play(trace, Optimum(LLM, trace, UNLIMITED), LLM).computed_tokens == unavoidable_tokens(trace)


def test_the_limit_keeps_what_is_used_again_first() -> None:
    a, b, c = run((0, 4)), run((10, 14)), run((20, 24))
    trace = Trace(BLOCK_TOKENS, [a, b, c, b, a])
    room_for_one = Budget(4 * CELL_BYTES)
    # While c runs there is room for a or b beside it. b comes first; then a is gone.
    assert resumed(Optimum(LLM, trace, room_for_one), *trace.requests) == [0, 0, 0, 4, 0]


def test_marconi_keeps_a_state_at_the_end_of_a_prompt_and_where_one_has_left_another() -> None:
    scheme = marconi(LLM, BLOCK_TOKENS, UNLIMITED, alpha=0.5)
    branches = [run((0, 200), (start, start + 10)) for start in (300, 400, 500)]
    assert resumed(scheme, run((0, 250)), *branches) == [0, 0, 200, 200]
    assert resumed(scheme, run((0, 250), (600, 610))) == [250]


def test_vllm_resumes_at_large_blocks_only() -> None:
    scheme = Vllm(LLM, BLOCK_TOKENS, UNLIMITED, NUM_IDS)
    large = 528 // BLOCK_TOKENS
    assert resumed(scheme, run((0, 2 * large + 5)), run((0, 2 * large + 5), (300, 310))) == [0, 2 * large]
    assert resumed(scheme, run((100, 120)), run((100, 120))) == [0, 0], "shorter than a block: never a hit"


def test_sglang_has_a_state_at_a_branch_point_once_it_has_seen_it() -> None:
    scheme = Sglang(LLM, BLOCK_TOKENS, UNLIMITED, NUM_IDS)
    first, second, third = (run((0, 10), (start, start + 5)) for start in (100, 200, 300))
    assert resumed(scheme, first, second, third) == [0, 0, 10]


def test_an_evicted_turn_goes_from_its_end() -> None:
    scheme = Sglang(Llm("attention", LLM.bytes_per_token, 0), BLOCK_TOKENS, Budget(10 * CELL_BYTES), NUM_IDS)
    assert resumed(scheme, run((0, 8)), run((50, 54)), run((0, 8))) == [0, 0, 6]


def test_what_ram_cannot_hold_is_loaded_from_disk() -> None:
    scheme = Sglang(LLM, BLOCK_TOKENS, Budget(6 * CELL_BYTES + 400, 1 << 40), NUM_IDS)
    first, second = run((0, 6)), run((50, 56))
    served = [scheme.serve(each, each.blocks()) for each in (first, second, first, first)]
    path_bytes = 6 * CELL_BYTES + LLM.snapshot_bytes
    assert [(each.resumed, each.disk_bytes) for each in served] == [(0, 0), (0, 0), (6, path_bytes), (6, 0)]


def test_llama_server_goes_on_in_the_slot_that_shares_most() -> None:
    scheme = LlamaServer(LLM, BLOCK_TOKENS, UNLIMITED)
    assert resumed(scheme, run((0, 60)), run((100, 160)), run((0, 60), (300, 310))) == [0, 0, 60]


def test_llama_server_goes_back_to_checkpoints_near_the_end_only() -> None:
    scheme = LlamaServer(LLM, BLOCK_TOKENS, UNLIMITED)
    near_end = 60 - 516 // BLOCK_TOKENS - 1  # 4 + 512 tokens before an end that lies 5 tokens behind the last block
    assert resumed(scheme, run((0, 60)), run((0, 59), (300, 310)))[1] == near_end + 1
    scheme = LlamaServer(LLM, BLOCK_TOKENS, UNLIMITED)
    assert resumed(scheme, run((0, 60)), run((0, 20), (300, 310))) == [0, 0], "nothing was kept that early"


def test_llama_server_gives_up_the_oldest_copy_first() -> None:
    chats = [run((100 * number, 100 * number + 50)) for number in range(6)]
    copy_bytes = 50 * CELL_BYTES + 3 * LLM.snapshot_bytes
    scheme = LlamaServer(LLM, BLOCK_TOKENS, Budget(4 * copy_bytes))
    resumed(scheme, *chats)
    # four slots, of which three rest, and one copy: the first two chats were copied, and the first of them is gone
    assert resumed(scheme, chats[1]) == [50]
    assert resumed(scheme, chats[0]) == [0]


def test_slots_that_are_not_counted_come_on_top() -> None:
    chats = [run((100 * number, 100 * number + 50)) for number in range(4)]
    counted, free = (LlamaServer(LLM, BLOCK_TOKENS, Budget(0), counts_slots=counts) for counts in (True, False))
    assert resumed(counted, *chats, *chats)[4:] == [0, 0, 0, 0]
    assert resumed(free, *chats, *chats)[4:] == [50, 50, 50, 50]


def test_blocks_are_compared_as_a_whole() -> None:
    assert run((0, 3), (7, 9)).blocks().dtype == np.int32
    assert run((0, 3), (7, 9)).blocks().tolist() == [0, 1, 2, 7, 8]
