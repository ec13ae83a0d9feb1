"""`python -m tests.behaviour.eager_drafts` is `leftoff`, on a machine where any number of tokens takes as long as one.

So its server drafts whatever it finds or a next-token layer guesses, and is often wrong: for proofs that drafts cannot
be seen.
"""

import sys

import leftoff.host.drafts
from leftoff.cli.main import main
from leftoff.engine.measure import HeadTimes
from tests.scheduler.conftest import FreeBatches

if __name__ == "__main__":
    vars(leftoff.host.drafts).update(
        measure_batches=lambda _: {1: 1.0, 64: 1.0}, measure_head=lambda _: HeadTimes(0.0, 0.0), BatchTimes=FreeBatches
    )
    sys.exit(main())
