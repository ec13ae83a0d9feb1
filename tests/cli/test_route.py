"""`leftoff route` says what is wrong with its flags before it listens."""

import subprocess
import sys

import pytest

from leftoff.cli.main import main
from tests.patience import PATIENCE_S

pytest.importorskip("redis", reason="leftoff[cluster] is not installed")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "--replica URL for each replica"),
        (("--replica", "foo"), "--replica 'foo' is no address: give one such as http://127.0.0.1:8080"),
    ],
)
def test_a_router_that_could_not_find_its_replicas_is_refused(
    flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", "--port", "0", *flags]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_an_index_that_is_none_is_refused() -> None:
    """By a process of its own, since it listens by then."""
    command = [sys.executable, "-m", "leftoff", "route", "--port", "0", "--index", "foo://bar"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "give a URL such as redis://host:6379/0" in ended.stderr
    assert "Traceback" not in ended.stderr
