"""The soak test, in seconds: budgets, integrity and files. Whether memory grows shows only in the long one."""

from pathlib import Path

import pytest

from tests.behaviour.soak import Soak


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files by Linux's /proc")
def test_a_short_soak(tmp_path: Path) -> None:
    soak = Soak(seconds=1.0, folder=tmp_path, requests_per_look=12)
    soak.run()
    assert soak.num_requests >= 60
    assert soak.num_left > 0
    assert soak.num_reused > 0
    assert [problem for problem in soak.problems() if not problem.startswith("memory")] == []
