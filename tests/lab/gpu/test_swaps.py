"""Two models with room for one, on the CPU."""

from pathlib import Path

from lab.gpu.random_model import write_random_model
from lab.gpu.record import Record
from lab.gpu.rig import Rig
from lab.gpu.shapes import shape
from lab.gpu.swaps import Extent, measure

_LONG = 512


def test_a_conversation_goes_on_after_another_model_has_worked(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first.gguf", "second.gguf"))
    write_random_model(first, shape("hybrid", "small"))
    write_random_model(second, shape("window-128", "small"))
    record = Record("", [], first.name, _LONG, say=lambda _: None)
    flags = ("--threads", "1")
    rig = Rig(first, "xllamacpp", record, tmp_path, _LONG, leftoff_flags=flags, second=second)
    measure(rig, Extent(num_rounds=2, num_swaps=6))
    swapped, awake, grown = record.rows
    assert len(swapped.leftoff.computed) == 2
    assert max(swapped.leftoff.computed) < _LONG / 4, "it was read again"
    assert swapped.leftoff.computed == awake.leftoff.computed
    assert 0 < grown.leftoff.values[0] < 2
