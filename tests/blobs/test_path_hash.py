"""The tag of a path is a hash of all of its tokens and its namespace, however it was come by."""

import numpy as np
import pytest

from leftoff.blobs.path_hash import RUN_TOKENS, HashedPath, PathHash, as_bytes, as_tokens, run_start
from tests.disk.stores import path_of

TOKENS = path_of(3 * RUN_TOKENS)
ENDS = [0, 1, RUN_TOKENS - 1, RUN_TOKENS, RUN_TOKENS + 1, 2 * RUN_TOKENS, 3 * RUN_TOKENS - 5, 3 * RUN_TOKENS]


@pytest.mark.parametrize("ends", [ENDS, ENDS[::-1]])
def test_a_tag_is_the_hash_of_everything_up_to_there(ends: list[int]) -> None:
    path = HashedPath("mine", TOKENS)
    for end in ends:
        assert path.tag(end) == PathHash("mine").read(as_bytes(TOKENS[:end])).tag
    assert path.tag(5) != HashedPath("other", TOKENS).tag(5)


def test_runs_cover_a_path_once() -> None:
    path = HashedPath("", TOKENS)
    for end in ENDS[1:]:
        ends = [*range(RUN_TOKENS, end, RUN_TOKENS), end]
        assert [run_start(each) for each in ends] == [0, *ends[:-1]]
        joined = b"".join(path.run(each) for each in ends)
        assert np.array_equal(as_tokens(joined), TOKENS[:end])


def test_a_path_is_hashed_again_for_other_tokens_or_another_namespace() -> None:
    path = HashedPath("mine", TOKENS)
    assert path.reused_for("mine", TOKENS) is path
    for namespace, tokens in (("other", TOKENS), ("mine", TOKENS[1:])):
        fresh = path.reused_for(namespace, tokens)
        assert fresh.tag(10) == HashedPath(namespace, tokens).tag(10) != path.tag(10)
