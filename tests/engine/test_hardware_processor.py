"""A build that leaves instructions of the processor unused is told, if there is one that uses them."""

from pathlib import Path

import pytest

from leftoff.engine.binding.image import Platform
from leftoff.engine.hardware import unused_instructions
from leftoff.engine.install import packages

PLAIN = "CPU : NEON = 1 | ARM_FMA = 1 | LLAMAFILE = 1 | OPENMP = 1 | REPACK = 1 | "
FULL = "CPU : NEON = 1 | ARM_FMA = 1 | DOTPROD = 1 | REPACK = 1 | "


def a_machine(folder: Path, line: str) -> Path:
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc/cpuinfo").write_text(f"processor\t: 0\n{line}\nother\t: x\n")
    return folder


@pytest.fixture
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.engine.hardware.this_platform", lambda: Platform("Linux", "arm64"))


@pytest.mark.usefixtures("_on_linux")
def test_an_engine_that_uses_more_is_named(tmp_path: Path) -> None:
    arm = a_machine(tmp_path, "Features\t: fp asimd asimddp")
    assert "DOTPROD instructions unused. Faster: leftoff engine install cpu" in unused_instructions(PLAIN, arm)
    assert unused_instructions(FULL, arm) == ""
    assert unused_instructions(PLAIN, a_machine(tmp_path, "Features\t: fp asimd")) == ""
    x86 = a_machine(tmp_path, "flags\t\t: sse4_2 avx2")
    assert "AVX2 instructions" in unused_instructions("CPU : SSE3 = 1 | ", x86)
    assert unused_instructions("CPU : AVX2 = 1 | ", x86) == ""


@pytest.mark.usefixtures("_on_linux")
def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    assert unused_instructions(PLAIN, tmp_path) == ""
    assert unused_instructions(PLAIN, a_machine(tmp_path, "model name\t: any")) == ""


def test_nothing_is_said_where_there_is_no_other_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PACKAGES", ())
    assert unused_instructions(PLAIN, a_machine(tmp_path, "Features\t: asimddp")) == ""
