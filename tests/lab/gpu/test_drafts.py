"""The draft model of the measurement is right by construction, and the command tells the rate of each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.gpu.__main__ import main
from lab.gpu.drafts import KINDS
from lab.gpu.random_model import write_random_model
from lab.gpu.shapes import shape
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.types import Logits
from tests.factory import small_vocabulary


def logits_of(path: Path) -> Logits:
    tokens = np.random.default_rng(1).choice(small_vocabulary().words, 50).astype(np.int32)
    with LlamaEngine.open(path, ContextSettings(num_cells=256, num_sequences=1, threads=1)) as engine:
        (row,) = engine.decode([Work(0, tokens)])
        return engine.logits(row).copy()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_add_nothing_say_nothing(tmp_path: Path, kind: str) -> None:
    whole = shape(kind, "small")
    longer = replace(whole, layers=2 * whole.layers)
    write_random_model(tmp_path / "main.gguf", longer, whole.num_layers)
    write_random_model(tmp_path / "draft.gguf", whole)
    write_random_model(tmp_path / "other.gguf", longer)
    drafted = logits_of(tmp_path / "draft.gguf")
    np.testing.assert_array_equal(logits_of(tmp_path / "main.gguf"), drafted)
    assert np.abs(logits_of(tmp_path / "other.gguf") - drafted).max() > 0.1, "the control: its layers count"


def test_the_command_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.gpu.drafts._REPLY", 8)
    assert main(["drafts", "--size", "small", "--folder", str(tmp_path), "--rounds", "1"]) == 0
    told = capsys.readouterr().out
    assert [f"dense small, {name}: " in told for name in ("always right", "always wrong")] == [True] * 2
    assert not [*tmp_path.iterdir()]
