"""`python -m tests.behaviour.eager_drafts` is `leftoff`, on a machine where any number of tokens takes as long as one.

So its server drafts whatever it finds or a next-token layer guesses, and is often wrong: for proofs that drafts cannot
be seen.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import leftoff.host.drafts
from leftoff.cli.main import main
from leftoff.engine.measure import HeadTimes
from tests.scheduler.conftest import FreeBatches


@contextmanager
def eager_drafts() -> Iterator[None]:
    """Of the servers that are opened meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftoff.host.drafts, "measure_batches", lambda _: {1: 1.0, 64: 1.0})
        patch.setattr(leftoff.host.drafts, "measure_head", lambda _: HeadTimes(0.0, 0.0))
        patch.setattr(leftoff.host.drafts, "BatchTimes", FreeBatches)
        yield


if __name__ == "__main__":
    with eager_drafts():
        sys.exit(main())
