"""The logits at every position of a prompt, for who wants the log-probabilities of its tokens."""

import numpy as np
import pytest

from leftoff.cache.report import Reason
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.scheduler import run as run_module
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt, Tokens
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import ROUNDING, Recorder, ask, assert_greedy, prompt, run
from tests.server.cold import rounding_of


class Scores(dict[int, Logits]):
    """The logits by their positions, each of which is told once and in order."""

    def __call__(self, position: int, logits: Logits) -> None:
        assert position == len(self) + 1
        self[position] = logits.copy()


def score(scheduler: Scheduler, tokens: Tokens, max_tokens: int = 0) -> tuple[Recorder, Scores]:
    recorder, scores = Recorder(), Scores()
    scheduler.submit(Run(Job(Prompt(tokens), max_tokens=max_tokens, score=scores), recorder))
    return recorder, scores


def assert_exact(engine: LlamaEngine, tokens: Tokens, scores: Scores, rounding: float = ROUNDING) -> None:
    """They are what the engine says by itself, with no cache and nobody beside it."""
    assert [*scores] == [*range(1, tokens.size)]
    for seq in range(engine.memory.num_sequences):
        engine.memory.drop(seq)
    (row,) = engine.decode([Work(0, tokens, all_logits=True)])
    for position, logits in scores.items():
        own = engine.logits(row - tokens.size + position)
        assert np.abs(own - logits).mean() < rounding, f"at position {position}"
    engine.memory.drop(0)


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2", "gemma3", "deepseek4"])
def test_the_logits_of_a_known_prompt_are_computed_again(architecture: str) -> None:
    with scheduler_for(architecture, slots=2) as scheduler:
        tokens = prompt(scheduler, 550, seed=1)
        ask(scheduler, tokens)
        run(scheduler)
        talker = prompt(scheduler, 20, seed=2)
        _, talk = ask(scheduler, talker, max_tokens=30)
        scheduler.step()
        recorder, scores = score(scheduler, tokens, max_tokens=4)
        run(scheduler)
        assert recorder.finish is Finish.LENGTH
        assert recorder.report is not None
        assert [(part.reason, part.num_tokens) for part in recorder.report.rereads] == [(Reason.LOGPROBS, 550)]
        _, again = ask(scheduler, tokens)
        run(scheduler)
        assert again.report is not None
        assert again.report.reused == 550, "what was read is kept, as always"
        scheduler.cache.check_integrity()
        rounding = rounding_of(architecture)
        assert_exact(scheduler.engine, tokens, scores, rounding)
        assert_greedy(scheduler.engine, tokens, recorder.tokens, rounding)
        assert_greedy(scheduler.engine, talker, talk.tokens, rounding)
        with pytest.raises(AssertionError, match="at position"):
            assert_exact(scheduler.engine, tokens[::-1].copy(), scores, rounding)


def test_pieces_are_short_enough_for_their_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler_for("llama", slots=1) as scheduler:
        row_bytes = 4 * scheduler.engine.model.vocabulary.size
        monkeypatch.setattr(run_module, "_MAX_SCORED_BYTES", 10 * row_bytes + 1)
        recorder, scores = score(scheduler, tokens := prompt(scheduler, 35, seed=1))
        run(scheduler)
        assert recorder.reads == [10, 20, 30, 35]
        assert_exact(scheduler.engine, tokens, scores)


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_who_is_paused_tells_the_rest_later(architecture: str) -> None:
    with scheduler_for(architecture, slots=2, num_cells=1024) as scheduler:
        _, talk = ask(scheduler, prompt(scheduler, 300, seed=1), max_tokens=40)
        scheduler.step()
        recorder, scores = score(scheduler, tokens := prompt(scheduler, 900, seed=2), max_tokens=2)
        pauses = 0
        while recorder.finish is None or talk.finish is None:
            scheduler.step()
            pauses += scheduler.num_waiting > 0 and 0 < len(scores) < 899
        assert pauses, "else it proves nothing"
        assert (recorder.finish, talk.finish) == (Finish.LENGTH, Finish.LENGTH)
        assert_exact(scheduler.engine, tokens, scores)


def test_an_error_in_a_score_ends_its_own_reply_alone() -> None:
    with scheduler_for("llama", slots=2) as scheduler:

        def fail(position: int, logits: Logits) -> None:
            raise ValueError(f"{position} of {logits.size}")

        _, other = ask(scheduler, prompt(scheduler, 40, seed=1))
        recorder = Recorder()
        scheduler.submit(Run(Job(Prompt(prompt(scheduler, 40, seed=2)), score=fail), recorder))
        run(scheduler)
        assert recorder.finish is Finish.FAILED
        assert isinstance(recorder.error, ValueError)
        assert other.finish is Finish.LENGTH
