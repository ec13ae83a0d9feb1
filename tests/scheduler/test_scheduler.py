"""Many requests over few slots: each gets its own reply, nobody starves, and what is shared is read once."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from leftoff.engine.engine import Work
from leftoff.engine.errors import InputError, NoRoomError
from leftoff.engine.memory.base import MemoryKind
from leftoff.scheduler.job import Finish, Job, QueueFullError
from leftoff.scheduler.run import Run
from leftoff.types import Prompt
from tests.patience import PATIENCE_S, until
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, ask, assert_greedy, prompt, run

KINDS = ["llama", "qwen35", "mamba2", "gemma3", "deepseek4"]


@pytest.mark.parametrize("architecture", KINDS)
def test_a_crowd_of_requests_gets_the_replies_each_would_get_alone(architecture: str) -> None:
    with scheduler_for(architecture, slots=3) as scheduler:
        header = prompt(scheduler, 150, seed=1)
        prompts = [np.concatenate([header, prompt(scheduler, 20 + 7 * i, seed=10 + i)]) for i in range(9)]
        asked = [ask(scheduler, tokens) for tokens in prompts]
        run(scheduler)
        assert {recorder.finish for _, recorder in asked} == {Finish.LENGTH}
        assert len({tuple(recorder.tokens) for _, recorder in asked}) > 6, "the replies must differ to prove anything"
        scheduler.cache.check_integrity()
        for tokens, (_, recorder) in zip(prompts, asked, strict=True):
            assert_greedy(scheduler.engine, tokens, recorder.tokens)
        with pytest.raises(AssertionError, match="not what comes next"):
            assert_greedy(scheduler.engine, prompts[0], asked[0][1].tokens[::-1])


@pytest.mark.parametrize("architecture", KINDS)
def test_requests_that_start_together_read_their_common_beginning_once(architecture: str) -> None:
    with scheduler_for(architecture, slots=4) as scheduler:
        header = prompt(scheduler, 600, seed=1)
        prompts = [np.concatenate([header, prompt(scheduler, 30, seed=20 + i)]) for i in range(6)]
        asked = [ask(scheduler, tokens) for tokens in prompts]
        run(scheduler)
        reports = [recorder.report for _, recorder in asked]
        computed = sum(report.computed for report in reports if report)
        assert computed <= 1.05 * (600 + 6 * 30)


def test_what_was_reused_counts_as_read_before_the_first_chunk() -> None:
    with scheduler_for("llama", slots=2) as scheduler:
        tokens = prompt(scheduler, 300, seed=1)
        ask(scheduler, tokens, max_tokens=1)
        run(scheduler)
        one, recorder = ask(scheduler, np.concatenate([tokens, prompt(scheduler, 700, seed=2)]), max_tokens=1)
        scheduler._admit()
        assert recorder.report is not None
        assert one.timings.num_read == recorder.report.reused >= 299
        run(scheduler)
        assert one.timings.num_read == 1000


def test_whoever_sleeps_is_woken_by_a_request() -> None:
    with scheduler_for("llama", slots=1) as scheduler:
        sleeper = threading.Thread(target=scheduler.wait, args=(PATIENCE_S,))
        sleeper.start()
        assert until(lambda: vars(scheduler._changed)["_waiters"]), "it sleeps"
        began = time.monotonic()
        ask(scheduler, prompt(scheduler, 20, seed=1))
        sleeper.join()
        assert time.monotonic() - began < PATIENCE_S / 2
        run(scheduler)


def test_a_common_beginning_is_read_once_also_beside_a_running_reply() -> None:
    with scheduler_for("llama", slots=4) as scheduler:
        _, talker = ask(scheduler, prompt(scheduler, 20, seed=1), max_tokens=100)
        while not talker.tokens:
            scheduler.step()
        header = prompt(scheduler, 1000, seed=2)
        prompts = [np.concatenate([header, prompt(scheduler, 30, seed=20 + i)]) for i in range(2)]
        asked = [ask(scheduler, tokens, max_tokens=2) for tokens in prompts]
        run(scheduler)
        computed = sum(recorder.report.computed for _, recorder in asked if recorder.report)
        assert computed <= 1.05 * (1000 + 2 * 30)


def test_replies_keep_streaming_while_a_long_prompt_is_read() -> None:
    with scheduler_for("qwen35", slots=2) as scheduler:
        _, talker = ask(scheduler, prompt(scheduler, 20, seed=1), max_tokens=200)
        scheduler.step()
        _, reader = ask(scheduler, prompt(scheduler, 3000, seed=2), max_tokens=1)
        longest = 0
        while reader.finish is None:
            before = len(talker.tokens)
            scheduler.step()
            longest = max(longest, 1 - (len(talker.tokens) - before))
        assert len(reader.reads) >= 3000 // 512, "the prompt is read in pieces"
        assert longest == 0, "every step brings the reply a token further"


@pytest.mark.parametrize(("cut_ms", "num_read"), [(1.0, 150), (400.0, 400)])
def test_a_chunk_beside_a_reply_is_worth_what_it_costs_whatever_its_length(cut_ms: float, num_read: int) -> None:
    with scheduler_for("llama", slots=2) as scheduler:
        _, talker = ask(scheduler, prompt(scheduler, 20, seed=1), max_tokens=30)
        while not talker.tokens:
            scheduler.step()
        scheduler.cache.costs.prefill_tokens_per_ms, scheduler.cache.costs.cut_ms = 1.0, cut_ms
        _, reader = ask(scheduler, prompt(scheduler, 2000, seed=2), max_tokens=1)
        scheduler.step()
        assert reader.reads == [num_read]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    with scheduler_for("llama", slots=2) as scheduler:
        _, long = ask(scheduler, prompt(scheduler, 4000, seed=1), max_tokens=1)
        _, short = ask(scheduler, prompt(scheduler, 40, seed=2), max_tokens=1)
        for _ in range(4):
            scheduler.step()
        assert short.finish is not None
        assert long.finish is None
        run(scheduler)
        assert long.finish is not None


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2", "gemma3"])
def test_short_prompts_are_read_together(architecture: str) -> None:
    with scheduler_for(architecture, slots=4) as scheduler:
        scheduler.cache.costs.prefill_tokens_per_ms = 1.0
        prompts = [prompt(scheduler, size, seed=size) for size in (20, 33, 15, 31)]
        asked = [ask(scheduler, tokens) for tokens in prompts]
        scheduler.step()
        assert [len(recorder.tokens) for _, recorder in asked] == [1, 1, 1, 1]
        run(scheduler)
        for tokens, (_, recorder) in zip(prompts, asked, strict=True):
            assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_a_prompt_that_comes_while_another_begins_is_read_with_it() -> None:
    with scheduler_for("llama", slots=2) as scheduler:
        scheduler.cache.costs.prefill_tokens_per_ms = 1.0
        asked: list[Recorder] = []
        other = threading.Thread(target=lambda: asked.append(ask(scheduler, prompt(scheduler, 30, seed=2))[1]))
        start = scheduler._start

        def start_late(run: Run) -> bool:
            if not asked:
                other.start()
                other.join(PATIENCE_S)
            return start(run)

        scheduler._start = start_late  # type: ignore[method-assign]
        asked_first = ask(scheduler, prompt(scheduler, 20, seed=1))[1]
        scheduler.step()
        assert [len(recorder.tokens) for recorder in (asked_first, *asked)] == [1, 1]
        run(scheduler)


def test_two_prompts_are_read_together_if_there_are_cells_for_both() -> None:
    with scheduler_for("llama", slots=3, num_cells=256) as scheduler:
        scheduler.cache.costs.prefill_tokens_per_ms = 10.0
        asked = [ask(scheduler, prompt(scheduler, 60, seed=seed), max_tokens=2)[1] for seed in (1, 2)]
        scheduler.step()
        assert [len(recorder.tokens) for recorder in asked] == [1, 1]
        run(scheduler)
        large = [ask(scheduler, prompt(scheduler, 150, seed=seed), max_tokens=2)[1] for seed in (3, 4)]
        scheduler.step()
        assert sorted(len(recorder.tokens) for recorder in large) == [0, 1]
        run(scheduler)
        assert {recorder.finish for recorder in large} == {Finish.LENGTH}


def test_a_short_prompt_is_not_read_together_with_a_longer_one() -> None:
    with scheduler_for("llama", slots=2) as scheduler:
        scheduler.cache.costs.prefill_tokens_per_ms = 1.0
        _, short = ask(scheduler, prompt(scheduler, 40, seed=1))
        _, longer = ask(scheduler, prompt(scheduler, 300, seed=2))
        scheduler.step()
        assert short.tokens
        assert not longer.reads
        scheduler.step()
        assert longer.reads, "its turn comes next"


def test_prompts_that_do_not_fit_together_are_read_one_after_the_other() -> None:
    with scheduler_for("llama", slots=3, num_cells=1024) as scheduler:
        scheduler.cache.costs.prefill_tokens_per_ms = 10.0
        _, talker = ask(scheduler, prompt(scheduler, 700, seed=1), max_tokens=30)
        while not talker.tokens:
            scheduler.step()
        asked = [ask(scheduler, prompt(scheduler, 200, seed=seed), max_tokens=1)[1] for seed in (2, 3)]
        run(scheduler)
        assert [recorder.finish for recorder in asked] == [Finish.LENGTH, Finish.LENGTH]
        assert len(talker.tokens) == 30, "nothing had to end for want of room"


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2", "gemma3"])
def test_an_identical_prompt_computes_nothing(architecture: str) -> None:
    with scheduler_for(architecture, slots=1) as scheduler:
        tokens = prompt(scheduler, 700, seed=1)
        _, first = ask(scheduler, tokens)
        run(scheduler)
        ask(scheduler, prompt(scheduler, 300, seed=2))
        run(scheduler)
        _, again = ask(scheduler, tokens)
        run(scheduler)
        assert again.report is not None
        assert again.report.computed == 0
        assert again.tokens == first.tokens


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2", "gemma3"])
def test_a_known_beginning_that_is_only_read_computes_nothing(architecture: str) -> None:
    with scheduler_for(architecture, slots=1) as scheduler:
        header = prompt(scheduler, 350, seed=1)
        for seed in (2, 3):
            ask(scheduler, np.concatenate([header, prompt(scheduler, 300, seed=seed)]))
            run(scheduler)
        recorder = Recorder()
        scheduler.submit(Run(Job(Prompt(header), max_tokens=0), recorder))
        run(scheduler)
        assert recorder.report is not None
        assert (recorder.report.computed, recorder.finish, recorder.tokens) == (0, Finish.LENGTH, [])
        _, replied = ask(scheduler, header)
        run(scheduler)
        assert replied.tokens, "its logits are computed for who wants a reply"


def test_a_cancelled_request_frees_its_slot_within_a_step() -> None:
    with scheduler_for("qwen35", slots=1) as scheduler:
        tokens = prompt(scheduler, 2000, seed=1)
        asked, recorder = ask(scheduler, tokens, max_tokens=100)
        while len(recorder.reads) < 8:
            scheduler.step()
        waiting, waiter = ask(scheduler, prompt(scheduler, 10, seed=2))
        scheduler.cancel(asked)
        scheduler.cancel(waiting)
        scheduler.step()
        assert recorder.finish is Finish.CANCELLED
        assert waiter.finish is Finish.CANCELLED
        assert not scheduler.runs
        scheduler.cache.check_integrity()
        _, again = ask(scheduler, tokens, max_tokens=4)
        run(scheduler)
        assert again.report is not None
        assert again.report.reused >= 512, "what was read before the cancel is used"


def test_a_sink_that_has_enough_ends_the_reply() -> None:
    with scheduler_for("llama", slots=1) as scheduler:
        recorder = Recorder(limit=3)
        scheduler.submit(Run(Job(Prompt(prompt(scheduler, 20, seed=1)), max_tokens=50), recorder))
        run(scheduler)
        assert len(recorder.tokens) == 3
        assert recorder.finish is Finish.STOPPED


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3"])
def test_who_comes_last_into_a_full_context_goes_on_when_another_has_ended(architecture: str) -> None:
    with scheduler_for(architecture, slots=3, num_cells=512) as scheduler:
        prompts = [prompt(scheduler, size, seed=size) for size in (250, 150, 175)]
        asked = [ask(scheduler, tokens, max_tokens=100)[1] for tokens in prompts]
        most, num_decoded, decode = 0, 0, scheduler.engine.decode

        def counting(works: Sequence[Work], *, is_awaited: bool) -> list[int]:
            nonlocal most, num_decoded
            most, num_decoded = max(most, len(works)), num_decoded + sum(work.tokens.size for work in works)
            return decode(works, is_awaited=is_awaited)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduler.engine, "decode", counting)
            run(scheduler)
        assert most > 1, "they ran side by side as long as there was room"
        assert [(recorder.finish, len(recorder.tokens)) for recorder in asked] == [(Finish.LENGTH, 100)] * 3
        assert num_decoded <= 250 + 150 + 175 + 3 * 100, "nothing is read twice"
        scheduler.cache.check_integrity()
        for tokens, recorder in zip(prompts, asked, strict=True):
            assert recorder.reads[-1] == tokens.size, "what was written is no progress in reading"
            assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_a_paused_request_can_be_cancelled() -> None:
    with scheduler_for("qwen35", slots=2, num_cells=512) as scheduler:
        _, first = ask(scheduler, prompt(scheduler, 300, seed=1), max_tokens=150)
        asked, second = ask(scheduler, prompt(scheduler, 100, seed=2), max_tokens=150)
        while not scheduler.num_waiting or not second.tokens:
            scheduler.step()
        scheduler.cancel(asked)
        run(scheduler)
        assert second.finish is Finish.CANCELLED
        assert len(first.tokens) == 150
        scheduler.cache.check_integrity()


def test_a_reply_that_fills_the_context_alone_ends_there() -> None:
    with scheduler_for("llama", slots=2, num_cells=512) as scheduler:
        _, first = ask(scheduler, prompt(scheduler, 200, seed=1), max_tokens=400)
        _, second = ask(scheduler, prompt(scheduler, 100, seed=2), max_tokens=60)
        run(scheduler)
        assert (first.finish, len(first.tokens)) == (Finish.LENGTH, 512 - 200 + 1)
        assert len(second.tokens) == 60
        scheduler.cache.check_integrity()


def test_what_cannot_be_served_is_refused_at_once() -> None:
    with scheduler_for("llama", slots=1, num_cells=256, queue=2) as scheduler:
        with pytest.raises(NoRoomError, match="300 tokens"):
            ask(scheduler, prompt(scheduler, 300, seed=1))
        with pytest.raises(InputError, match="empty"):
            ask(scheduler, np.empty(0, np.int32))
        ask(scheduler, prompt(scheduler, 10, seed=1))
        ask(scheduler, prompt(scheduler, 10, seed=2))
        with pytest.raises(QueueFullError, match="2 requests are waiting"):
            ask(scheduler, prompt(scheduler, 10, seed=3))


def test_tenants_share_nothing() -> None:
    with scheduler_for("qwen35", slots=2) as scheduler:
        tokens = prompt(scheduler, 400, seed=1)
        ask(scheduler, tokens, namespace="one")
        run(scheduler)
        _, other = ask(scheduler, tokens, namespace="two")
        run(scheduler)
        assert other.report is not None
        assert other.report.reused == 0


def test_an_opaque_model_serves_many_requests_with_its_one_sequence() -> None:
    with scheduler_for("llama", slots=4, flash_attention="off") as scheduler:
        assert scheduler.engine.memory.kind is MemoryKind.OPAQUE
        assert len(scheduler.cache.sequences.slots) == 1
        asked = [ask(scheduler, prompt(scheduler, 40, seed=i), max_tokens=3) for i in range(5)]
        run(scheduler)
        assert all(len(recorder.tokens) == 3 for _, recorder in asked)
