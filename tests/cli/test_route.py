"""`leftoff route` says what is wrong with its flags before it listens."""

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

pytest.importorskip("redis", reason="leftoff[cluster] is not installed")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "--replica URL for each replica"),
        (("--index", "foo://bar"), "give a URL such as redis://host:6379/0"),
        (("--replica", "foo"), "--replica 'foo' is no address: give one such as http://127.0.0.1:8080"),
    ],
)
def test_a_router_that_could_not_find_its_replicas_is_refused(flags: tuple[str, ...], told: str) -> None:
    command = [sys.executable, "-m", "leftoff", "route", "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
