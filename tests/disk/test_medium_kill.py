"""What was acknowledged outlives kill -9 at any moment. `python -m tests.disk.kill_loop 200` is the long version."""

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def test_nothing_acknowledged_is_lost_and_nothing_unknown_stays() -> None:
    command = [sys.executable, "-m", "tests.disk.kill_loop", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"killed 10 times, [1-9]\d* acknowledged", done.stdout)
