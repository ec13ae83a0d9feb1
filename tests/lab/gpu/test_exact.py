"""Histories on small models: each must resume something, or it proves nothing."""

from pathlib import Path

import pytest

from lab.bench.errors import BenchError
from lab.gpu.exact import measure
from lab.gpu.record import Record
from lab.gpu.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    record = Record("", [], "", 512, say=lambda _: None)
    return Rig(tmp_path, "xllamacpp", record, tmp_path, leftoff_flags=("--threads", "1"))


def test_a_window_is_resumed_and_nothing_differs(rig: Rig) -> None:
    measure(rig, 3, ("window-128",))
    full, partial = rig.record.rows
    assert full.title == "window-128, full offload (--gpu-layers all)"
    assert partial.title == "window-128, partial offload (--gpu-layers 2)"
    assert full.is_reached
    assert partial.is_reached
    assert full.goal == "≤ 0 replies that differ; some tokens reused"


def test_a_case_without_reuse_has_failed(rig: Rig) -> None:
    with pytest.raises(BenchError, match="they prove nothing: dense, full offload"):
        measure(rig, 1, ("dense",))
    assert [row.is_reached for row in rig.record.rows] == [False, False]
