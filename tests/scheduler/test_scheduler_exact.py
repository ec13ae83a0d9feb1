"""A prompt that is resumed beside other slots gets the logits of a sequence that was alone all the time, bit for bit.

One thread, and pieces that the CPU adds up cell by cell: there only the order of the cells counts. The other sequence
reads the very same pieces.
"""

import numpy as np
import pytest

from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt, Tokens
from tests.engine.memory.placed import attention_cells
from tests.engine.scenario import read as read_pieces
from tests.engine.scenario import reply as reply_alone
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, prompt, run

KINDS = ["llama", "qwen35", "gemma3", "lfm2-window", "mamba2"]
NUM_REPLY = 6


def ask(scheduler: Scheduler, tokens: Tokens) -> Recorder:
    recorder = Recorder()
    scheduler.submit(Run(Job(Prompt(tokens), max_tokens=NUM_REPLY, wants_logits=True), recorder))
    run(scheduler)
    return recorder


def never_left(scheduler: Scheduler, tokens: Tokens, *readers: Recorder) -> list[Logits]:
    """Before each token of the reply, by a sequence that reads the pieces that the readers have read.

    Leaves the engine empty: to be asked after everything else.
    """
    engine = scheduler.engine
    engine.memory.clear()
    ends = [end for reader in readers for end in reader.reads]
    for piece in np.split(tokens, ends[:-1]):
        logits = read_pieces(engine, 0, piece, piece.size)
    _, after = reply_alone(engine, 0, logits, NUM_REPLY - 1)
    return [logits, *after]


@pytest.mark.parametrize("architecture", KINDS)
@pytest.mark.parametrize("slots", [1, 3])
def test_an_edit_of_the_first_of_three_prompts(architecture: str, slots: int) -> None:
    with scheduler_for(architecture, slots=slots, micro_batch_tokens=32) as scheduler:
        first, second, third, more = (prompt(scheduler, size, seed=size) for size in (93, 330, 25, 22))
        reader, *_ = [ask(scheduler, tokens) for tokens in (first, second, third)]
        scheduler.tidy()
        tokens = np.concatenate([first, more])
        edited = ask(scheduler, tokens)
        assert edited.report is not None
        assert edited.report.reused == 93
        np.testing.assert_array_equal(edited.logits, never_left(scheduler, tokens, reader, edited))


@pytest.mark.parametrize("architecture", KINDS)
def test_a_prompt_shortened_by_its_reply_is_taken_from_the_slot_that_went_on(architecture: str) -> None:
    with scheduler_for(architecture, slots=2, micro_batch_tokens=32) as scheduler:
        tokens = prompt(scheduler, 192, seed=1)
        reader = ask(scheduler, tokens[:64])
        ask(scheduler, prompt(scheduler, 40, seed=2))
        again = ask(scheduler, tokens[:80])
        assert again.report is not None
        assert again.report.reused == 64
        np.testing.assert_array_equal(again.logits, never_left(scheduler, tokens[:80], reader, again))


@pytest.mark.parametrize("architecture", KINDS)
def test_a_reply_that_goes_on_while_others_come_and_go(architecture: str) -> None:
    """Those end in slots before it, and their cells are taken by the next: its own must not move before it."""
    with scheduler_for(architecture, slots=3, micro_batch_tokens=32, num_cells=512) as scheduler:
        memory, tokens = scheduler.engine.memory, prompt(scheduler, 60, seed=1)
        ask(scheduler, prompt(scheduler, 70, seed=2))
        talker = Recorder()
        scheduler.submit(Run(Job(Prompt(tokens), max_tokens=60, wants_logits=True), talker))
        for number in range(5):
            for _ in range(6):
                scheduler.step()
            recorder = Recorder()
            scheduler.submit(Run(Job(Prompt(prompt(scheduler, 30 + number, seed=9 + number)), max_tokens=3), recorder))
        run(scheduler)
        assert len(talker.tokens) == 60
        scheduler.cache.check_integrity()
        written = np.concatenate([tokens, np.array(talker.tokens[:-1], np.int32)])
        sequence = next(sequence for sequence in scheduler.cache.sequences if np.array_equal(sequence.tokens, written))
        if memory.kind.has_pages:
            cells = [cell for cell in attention_cells(scheduler.engine) if sequence.seq in cell.seqs]
            assert [cell.position for cell in cells] == [*range(written.size)]


def test_idle_sequences_make_way_where_cells_that_they_share_have_to_move() -> None:
    """RAM holds nothing here, so they stay in the engine as long as there is room.

    cells [ first )[ header, shared by three )[ tails )    and then the first one leaves
    """
    with scheduler_for("llama", slots=4, ram_bytes=0, num_cells=512, micro_batch_tokens=32) as scheduler:
        header = prompt(scheduler, 200, seed=1)
        ask(scheduler, prompt(scheduler, 60, seed=2))
        tails = [prompt(scheduler, 20, seed=3 + number) for number in range(3)]
        for tail in tails:
            ask(scheduler, np.concatenate([header, tail]))
        scheduler.engine.memory.drop(scheduler.cache.sequences[0].seq)
        scheduler.cache.sequences[0].clear()
        grown = ask(scheduler, np.concatenate([header, tails[0], prompt(scheduler, 180, seed=9)]))
        assert (len(grown.tokens), grown.error) == (NUM_REPLY, None)
        scheduler.cache.check_integrity()
        cells = attention_cells(scheduler.engine)
        for sequence in scheduler.cache.sequences:
            assert [cell.position for cell in cells if sequence.seq in cell.seqs] == [*range(sequence.length)]


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3"])
@pytest.mark.parametrize("spares", [0, 1])
def test_whatever_a_plan_shares_and_loads_the_cells_of_who_runs_ascend(architecture: str, spares: int) -> None:
    """Random prices make random plans: shared with any sequence, cut back in place, loaded behind shared cells."""
    rng = np.random.default_rng(1)
    with scheduler_for(architecture, slots=3, spares=spares, num_cells=1024, micro_batch_tokens=32) as scheduler:
        known = [prompt(scheduler, 40, seed=0)]
        for number in range(30):
            costs = scheduler.cache.costs
            costs.prefill_tokens_per_ms, costs.load_bytes_per_ms = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(3, 7)
            old = known[rng.integers(len(known))]
            old = old[: rng.integers(1, old.size + 1)]
            tokens = np.concatenate([old, prompt(scheduler, int(rng.integers(1, 40)), seed=number)])[:300]
            reply = ask(scheduler, tokens)
            known = [*known, np.concatenate([tokens, np.array(reply.tokens, np.int32)])][-8:]
            if rng.random() < 0.4:
                scheduler.tidy()
            written = known[-1][:-1]
            cells = attention_cells(scheduler.engine)
            for sequence in scheduler.cache.sequences:
                if np.array_equal(sequence.tokens, written):
                    assert [cell.position for cell in cells if sequence.seq in cell.seqs] == [*range(written.size)]
        scheduler.cache.check_integrity()
