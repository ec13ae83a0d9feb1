"""Sampled tokens follow the model's own distribution, drafted or not; a draft that is simply believed would show."""

import numpy as np
import pytest

from leftoff.drafts.trail import Draft
from leftoff.engine.engine import Work
from leftoff.scheduler.run import Run
from tests.drafts.distribution import LARGEST, sample
from tests.drafts.sources import SOURCES
from tests.factory import MTP, model_path

NUM_TOKENS = 600


@pytest.mark.parametrize("source", SOURCES)
def test_sampled_replies_follow_the_distribution(source: str) -> None:
    sampled = sample(model_path(MTP), NUM_TOKENS, source)
    assert sampled.num_drafted > 40
    assert sampled.chi_squared < LARGEST


@pytest.mark.parametrize("source", SOURCES)
def test_a_draft_that_is_believed_shows(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The control: the token that comes is the drafted or expected one whenever there is one."""
    believed: list[int] = []
    verify, take_sampled = Run.verify, Run.take_sampled

    def believing(self: Run) -> None:
        expected = self.trail.expected(1) if self.trail is not None else believed[:1]
        if self._sampled is not None and expected:
            del believed[:1]
            self._sampled = expected[0], self._sampled[1]
        take_sampled(self)

    def verify_nothing(self: Run, work: Work, row: int, draft: Draft) -> int:
        believed[:] = work.tokens[work.tokens.size - work.num_drafted :].tolist()
        return verify(self, work, row, draft)

    monkeypatch.setattr(Run, "take_sampled", believing)
    monkeypatch.setattr(Run, "verify", verify_nothing)
    sampled = sample(model_path(MTP), NUM_TOKENS, source)
    assert sampled.num_accepted > 0
    assert not np.isfinite(sampled.chi_squared) or sampled.chi_squared > LARGEST
