"""A server that is killed at any moment loses nothing it had, and the next one says nothing wrong.

`python -m tests.behaviour.kill_server 200` is the long version.
"""

import sys

import pytest

from tests.behaviour.kill_server import Moment, kill_servers


@pytest.mark.skipif(sys.platform != "linux", reason="it waits until the server stands still")
def test_one_kill_at_each_kind_of_moment() -> None:
    tally = kill_servers(num_kills=len(Moment), seed=2)
    assert {*tally.moments} == {moment.name for moment in Moment}
    assert tally.num_seen > 0
    assert tally.num_resumed > 0
    assert tally.num_replies > 0
    assert tally.num_ties <= 0.05 * tally.num_tokens, "ties are rare"
