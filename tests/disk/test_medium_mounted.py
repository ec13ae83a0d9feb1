"""The disk is full, or read-only, in truth."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def may_mount() -> bool:
    try:
        command = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


mounting = pytest.mark.skipif(not may_mount(), reason="this system lets users mount nothing, not even for themselves")


def said_on_a_disk(fault: str) -> str:
    command = [*NAMESPACE, sys.executable, "-m", "tests.disk.mounted", fault]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@mounting
@pytest.mark.parametrize(
    ("fault", "message"),
    [("full", "is full: free some space"), ("read_only", "cannot be written"), ("serving", "cannot be written")],
)
def test_a_disk_that_fails_is_waited_for(fault: str, message: str) -> None:
    said = said_on_a_disk(fault)
    assert message in said
    assert "written again" in said


@mounting
def test_on_a_full_disk_files_are_deleted_to_make_room_and_what_cannot_be_says_so() -> None:
    assert "nothing is deleted: the disk is full: free some space on it" in said_on_a_disk("deleting")
