"""Examines a model file in a process of its own: some damage llama.cpp does not report, but ends the process.

It plans what it would compute, without weights, on the CPU alone. What it would only meet in computing is not found.
"""

import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from leftoff.engine.context import ContextSettings
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.model_settings import NO_DEVICE, ModelSettings
from leftoff.engine.needs import Trial

_NUM_CELLS = 512


def examine(path: Path) -> None:
    """Raises `ModelError` for a file that would end this process. What else is wrong with it is told by loading it."""
    command = [sys.executable, "-m", __spec__.name, str(path)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode < 0:
        said = [line for line in done.stderr.splitlines() if "ASSERT" in line] or ["it did not say why"]
        raise ModelError(f"{path} is damaged: llama.cpp would end the server on it ({said[0]}). Fetch the file again")


def _plan(path: Path) -> None:
    with suppress(EngineError), closing(Trial(path, ModelSettings(devices=(NO_DEVICE,)))) as trial:
        trial.needs(ContextSettings(num_cells=_NUM_CELLS, num_sequences=1, threads=1))


if __name__ == "__main__":
    _plan(Path(sys.argv[1]))
