"""All kinds of models, one after the other: each is written while the one before is measured.

A kind that would begin after the deadline is left out and named: another run adds it to the same file.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.bench.errors import BenchError
from lab.bench.table import show_mib
from lab.gpu.cells import BRIEF, Cells, Extent
from lab.gpu.rig import Rig

LONG_KINDS = ("hybrid-moe", "window-128")
LONG = 131072
_LONG_KV = "q8_0"
_LONG_CONVERSATIONS = 4


@dataclass(frozen=True)
class Matrix:
    """What is measured: `rig` has the settings, with the model of each kind in turn.

    Those of `long_kinds` are measured a second time, with prompts of `long` tokens.
    """

    rig: Rig
    folder: Path  # of the models
    size: str
    kinds: Sequence[str]
    long_kinds: Collection[str] = LONG_KINDS
    long: int = LONG
    seconds: float | None = None
    extent: Extent = field(default_factory=Extent)

    def measure(self) -> int:
        """Returns the number of kinds that failed or were left out."""
        began, num_missing = time.perf_counter(), 0
        record = self.rig.record
        for number, model in enumerate(self._models()):
            if self.seconds is not None and time.perf_counter() - began > self.seconds:
                left_out = self.kinds[number:]
                record.say(f"LEFT OUT after {self.seconds:.0f} s: {','.join(left_out)}")
                return num_missing + len(left_out)
            num_missing += not self._try(lambda: self._measure(model), model.kind)  # noqa: B023
            record.say(f"  {time.perf_counter() - began:.0f} s so far")
        return num_missing

    def _measure(self, model: "_Model") -> None:
        model.wait()
        rig, record = replace(self.rig, model=model.path), self.rig.record
        record.say(f"{model.kind}: {show_mib(model.path.stat().st_size)}, prompts of {rig.long:,} tokens")
        Cells(rig, model.kind, self.extent).measure()
        if model.kind in self.long_kinds:
            name = f"{model.kind}, {self.long:,} tokens, {_LONG_KV} KV"
            record.say(name)
            longer = replace(rig, long=self.long, kv_type=_LONG_KV, conversations=_LONG_CONVERSATIONS)
            Cells(longer, name, replace(BRIEF, rest_s=self.extent.rest_s)).measure()

    def _models(self) -> Iterator["_Model"]:
        """Each with the next one being written beside it."""
        models = [_Model(kind, self.size, self.folder) for kind in self.kinds]
        try:
            for number, model in enumerate(models):
                for each in models[number : number + 2]:
                    each.begin()
                yield model
                model.remove()
        finally:
            for model in models:
                model.remove()

    def _try(self, measure: Callable[[], None], kind: str) -> bool:
        """A kind that fails does not take the others with it."""
        try:
            measure()
        except (BenchError, OSError) as error:
            self.rig.record.say(f"  {kind} FAILED: {error}")
            return False
        return True


class _Model:
    """The file of one kind: written by a process of its own, unless it is there, and removed after use."""

    def __init__(self, kind: str, size: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / f"{kind}-{size}.gguf"
        self._unfinished = self.path.with_suffix(".part")
        self._size = size
        self._is_own = not self.path.exists()
        self._writer: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        if self._is_own and self._writer is None:
            wanted = ["--kind", self.kind, "--size", self._size]
            # what is measured goes before
            command = ["nice", sys.executable, "-m", "lab.gpu", "model", str(self._unfinished), *wanted]
            self._writer = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def wait(self) -> None:
        if self._writer is not None:
            if self._writer.wait():
                raise BenchError(f"the model of {self.kind} could not be written")
            self._unfinished.rename(self.path)

    def remove(self) -> None:
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()
            self._unfinished.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
