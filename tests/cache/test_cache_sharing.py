"""Many conversations over one header: it is stored once, and a budget that is too small costs time, never more bytes.

The sizes are those of a 35B hybrid model, divided by 1,024: 20 KiB of attention per token and 62.8 MiB per snapshot.
"""

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.placement import Placement
from leftoff.cache.policy import Policy
from leftoff.cache.report import Reason, ReuseReport
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import MessageSpan, Prompt
from tests.cache.chain import RoomyChainMemory
from tests.cache.driver import Driver
from tests.cache.scripts import Chat, Writer
from tests.cache.trees import UNLIMITED, run

SCALE = 1024
BYTES_PER_TOKEN = 20
SNAPSHOT_BYTES = int(62.8 * 1024)
HEADER = 8000
NUM_CHATS = 16
NUM_TURNS = 2
LOGITS_BYTES = 4


def costs() -> Costs:
    """A machine that reads 500 tokens a second and copies 4 GB a second."""
    return Costs(prefill_tokens_per_ms=0.5, load_bytes_per_ms=4e6 / SCALE, save_bytes_per_ms=4e6 / SCALE)


class Office:
    """Sixteen chats take turns on one slot."""

    def __init__(self, budget_bytes: int, policy: Policy | None = None) -> None:
        memory = RoomyChainMemory(
            MemoryKind.HYBRID, 1, bytes_per_token=BYTES_PER_TOKEN, fixed_snapshot_bytes=SNAPSHOT_BYTES
        )
        self.cache = Cache(memory, num_slots=1, budget_bytes=budget_bytes, costs=costs(), policy=policy)
        self.driver = Driver(self.cache, memory, chunk=512)
        self.reports: list[ReuseReport] = []
        self.tail_tokens = 0
        self.most_bytes = 0

    def work(self) -> None:
        writer = Writer(1)
        header = Chat().say("system", writer.text(HEADER - 6))
        chats = [header] * NUM_CHATS
        for turn in range(NUM_TURNS):
            for number, chat in enumerate(chats):
                asked = chat.say("user", writer.text(150))
                reply = writer.text(60)
                self.reports.append(self.driver.request(asked.prompt(), reply).report)
                self.most_bytes = max(self.most_bytes, self.cache.ram.budget.used_bytes)
                self.cache.check_integrity()
                chats[number] = asked.say("assistant", reply)
                if turn == NUM_TURNS - 1:
                    self.tail_tokens += asked.prompt().length + reply.size - HEADER
        self.cache.save_idle()


def needed_bytes(office: Office) -> int:
    """The header once, each tail once, and the snapshots that are asked for.

    Those are one per gap inside the header and one at its end, which all chats share; and per turn four: at the end of
    the last message, at the end of the prompt (with its logits), in the middle of the reply and at its end. The start
    of the user's message is the end of the header, or close behind the reply before it.
    """
    gap = Placement().gaps(SNAPSHOT_BYTES, costs(), HEADER).wide
    in_header = sum(1 for _ in range(gap, HEADER - gap // 2 + 1, gap)) + 1
    num_turns = NUM_CHATS * NUM_TURNS
    pages = BYTES_PER_TOKEN * (HEADER + office.tail_tokens)
    return pages + SNAPSHOT_BYTES * (in_header + 4 * num_turns) + LOGITS_BYTES * num_turns


@pytest.fixture(scope="module")
def roomy() -> Office:
    office = Office(UNLIMITED)
    office.work()
    return office


def test_the_header_is_stored_once_and_each_tail_once(roomy: Office) -> None:
    assert roomy.cache.ram.budget.used_bytes <= 1.1 * needed_bytes(roomy)
    pages = {s.stored for node in roomy.cache.ram.trees[""].nodes() for s in node.stretches}
    assert sum(page.nbytes for page in pages) <= 1.1 * BYTES_PER_TOKEN * (HEADER + roomy.tail_tokens)


def test_the_header_is_read_once(roomy: Office) -> None:
    first, *others = roomy.reports
    assert first.reused == 0
    assert all(report.reused >= HEADER for report in others)
    assert sum(report.computed for report in others) <= 1.02 * sum(
        report.prompt_tokens - report.known for report in others
    )


@pytest.mark.parametrize("share", [0.1, 0.05, 0.02])
def test_a_smaller_budget_holds_and_is_named_as_the_reason(roomy: Office, share: float) -> None:
    budget = int(share * roomy.cache.ram.budget.used_bytes)
    office = Office(budget)
    office.work()
    assert office.most_bytes <= budget
    assert office.cache.ram.budget.num_evictions > 0
    parts = [part for report in office.reports for part in report.rereads]
    assert Reason.EVICTED in {part.reason for part in parts}
    elsewhere = max((part.num_tokens for part in parts if part.reason is Reason.NO_SNAPSHOT), default=0)
    assert elsewhere <= Placement().slack, "what was lost for the budget is not blamed on anything else"
    computed = sum(report.computed for report in office.reports)
    assert sum(report.computed for report in roomy.reports) < computed
    assert computed < 0.5 * sum(report.prompt_tokens for report in office.reports), "most of it is still reused"


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_short_prompts_are_reused_too(kind: MemoryKind) -> None:
    """Turns of 31, 48 and 65 tokens, of which the last four ask for a reply; what the model said is rendered anew."""
    memory = RoomyChainMemory(kind, 1)
    driver = Driver(Cache(memory, num_slots=1, budget_bytes=UNLIMITED), memory)
    ends, reused = (27, 44, 61), []
    said = np.random.default_rng(1).integers(100, 1000, 61).astype(np.int32)
    for number, end in enumerate(ends):
        starts = (0, *ends[:number])
        messages = [MessageSpan("user", start, stop) for start, stop in zip(starts, ends, strict=False)]
        prompt = Prompt(np.concatenate([said[:end], run((1, 4))]), tuple(messages))
        reused.append(driver.request(prompt, run((2, 9))).report.reused)
    assert reused[0] == 0
    assert reused[1] >= 27
    assert reused[2] >= 44
