"""What clients do, over HTTP: hardly more is read than is new, however many slots there are."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leftoff.core import Tokens
from tests.api.wire import Texts, Wire, says, wired
from tests.api.workloads import WORKLOADS, num_new, play

# A model of each memory kind that has a way of its own to resume, and slots.
SERVERS = [("qwen35", 1), ("qwen35", 4), ("llama", 4), ("mamba2", 4), ("gemma3", 4)]
ALLOWED = 1.03
ALLOWED_TOGETHER = 1.05
NUM_TOGETHER = 6


@pytest.fixture(scope="module", params=SERVERS, ids=lambda server: f"{server[0]}, slots {server[1]}")
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    architecture, slots = request.param
    with wired(architecture, slots=slots) as wire:
        yield wire


@pytest.mark.parametrize("workload", WORKLOADS)
def test_hardly_more_is_read_than_is_new(wire: Wire, workload: str) -> None:
    wire.forget()
    account = play(WORKLOADS[workload](Texts(1)), wire)
    assert account.computed <= ALLOWED * account.unavoidable, f"{account}: {account.ratio:.3f} of the unavoidable"


def test_six_at_once_read_what_they_share_once(wire: Wire) -> None:
    wire.forget()
    texts = Texts(2)
    header = says("system", texts.text(3000))
    chats = [[header, says("user", texts.text(30, 200))] for _ in range(NUM_TOGETHER)]
    shown: list[Tokens] = []
    unavoidable = 0
    for chat in chats:
        tokens = wire.prompt(chat)
        unavoidable += num_new(tokens, shown)
        shown.append(tokens)
    with ThreadPoolExecutor(NUM_TOGETHER) as pool:
        computed = sum(answer.computed for answer in pool.map(lambda chat: wire.chat(chat, 30), chats))
    assert 3000 < unavoidable <= computed <= ALLOWED_TOGETHER * unavoidable, f"{computed / unavoidable:.3f}"
