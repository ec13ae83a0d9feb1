"""Sampled tokens follow the model's own distribution, drafted or not; a draft that is simply believed would show."""

import numpy as np
import pytest

from leftoff.scheduler.run import Run
from tests.drafts.distribution import LARGEST, sample
from tests.factory import model_path


def test_sampled_replies_follow_the_distribution() -> None:
    sampled = sample(model_path("qwen35"), 1500, drafts=True)
    assert sampled.num_drafted > 40
    assert sampled.chi_squared < LARGEST


def test_a_draft_that_is_believed_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the token that comes is the drafted one whenever there is one."""
    honest = Run.take_sampled

    def believing(self: Run) -> None:
        if self._sampled is not None and self.trail is not None and (expected := self.trail.expected(1)):
            self._sampled = expected[0], self._sampled[1]
        honest(self)

    monkeypatch.setattr(Run, "take_sampled", believing)
    sampled = sample(model_path("qwen35"), 1500, drafts=True)
    assert sampled.num_accepted > 0
    assert not np.isfinite(sampled.chi_squared) or sampled.chi_squared > LARGEST
