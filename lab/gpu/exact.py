"""Random histories on small models of every kind, with all and with some of their layers on the GPU."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.bench.errors import BenchError
from lab.gpu import goals
from lab.gpu.random_model import write_random_model
from lab.gpu.record import Series
from lab.gpu.rig import Rig
from lab.gpu.shapes import KINDS, shape

_ROOT = Path(__file__).parents[2]
_NUM_HISTORIES = 30  # more than one life of the server
_MAX_AT_ONCE = 8
_FULL = ("--gpu-layers", "all")
_PARTIAL = {"moe": ("--n-cpu-moe", "2")}
_TWO_LAYERS = ("--gpu-layers", "2")
_DIFFER = re.compile(r"(\d+) replies differ, largest difference of a log-probability ([\d.]+)")
_REUSED = re.compile(r"(\d+) of \d+ prompt tokens reused")


@dataclass(frozen=True)
class _Case:
    kind: str
    offload: str
    flags: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.offload} ({' '.join(self.flags)})"


def measure(rig: Rig, num_histories: int = _NUM_HISTORIES, kinds: Sequence[str] = KINDS) -> None:
    """Several at once: they are small, and not timed."""
    cases = [
        _Case(kind, offload, flags)
        for kind in kinds
        for offload, flags in (("full offload", _FULL), ("partial offload", _PARTIAL.get(kind, _TWO_LAYERS)))
    ]
    rig.record.say(f"exact: {num_histories} histories with --deterministic, {len(cases)} times")
    with TemporaryDirectory(dir=rig.folder) as name:
        for kind in kinds:
            write_random_model(Path(name, f"{kind}.gguf"), shape(kind, "small"))
        at_once = max(1, min(_MAX_AT_ONCE, (os.cpu_count() or 2) // 2))
        with ThreadPoolExecutor(at_once) as pool:
            played = pool.map(lambda case: _play(rig, Path(name, f"{case.kind}.gguf"), case, num_histories), cases)
            failed = [case.title for case, is_proof in zip(cases, played, strict=True) if not is_proof]
    if failed:
        raise BenchError(f"they prove nothing: {'; '.join(failed)}")


def _play(rig: Rig, model: Path, case: _Case, num_histories: int) -> bool:
    """False if it says nothing of resumes: it could not be played, or nothing was resumed."""
    flags = ["--deterministic", *case.flags, *rig.leftoff_flags]
    command = [sys.executable, "-m", "tests.behaviour.histories", str(model), str(num_histories), *flags]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    found, reused = _DIFFER.search(ran.stdout), _REUSED.search(ran.stdout)
    if not found or not reused:
        said = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()[-1]
        rig.record.say(f"  {case.title} could not be played: {said}")
        return False
    note = f"{num_histories} histories, {reused[0]}, largest difference {found[2]}"
    differing = Series((float(found[1]),))
    num_reused = int(reused[1])
    goal = goals.all_of(goals.EXACT, goals.told(num_reused > 0, "some tokens reused"))
    rig.record.add("exact", case.title, "replies that differ", differing, goal=goal, note=note)
    return num_reused > 0
