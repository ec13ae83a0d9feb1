"""A model is fitted to the memory that is free; where memory is short, the error tells the numbers and the flags."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.errors import OutOfMemoryError
from leftoff.engine.fit import Fit, Wishes, fit_model
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.needs import HOST, Trial
from tests.factory import Scale, model_path

MIB = 1 << 20
TRAINED = 1 << 16
CONTEXT = ContextSettings(num_cells=TRAINED, num_sequences=2, threads=1)


def path() -> Path:
    return model_path("llama", Scale(context_length=TRAINED))


def fitted(ram_bytes: int, wishes: Wishes, model: ModelSettings | None = None) -> Fit:
    return fit_model(path(), model or ModelSettings(), CONTEXT, wishes, {"RAM": ram_bytes})


def needed(num_cells: int) -> int:
    with closing(Trial(path(), ModelSettings())) as trial:
        needs = trial.needs(ContextSettings(num_cells=num_cells, num_sequences=2, threads=1))
        assert needs is not None
        return needs.context[HOST]


def test_with_room_the_context_is_what_the_model_was_trained_for() -> None:
    fit = fitted(1 << 40, Wishes(0))
    assert (fit.num_cells, fit.model) == (TRAINED, ModelSettings())
    assert fit.line.startswith("65,536 tokens of context: ")
    assert fit.line.endswith("in RAM (weights 831 KiB; 1 TiB free)")


def test_with_less_room_the_context_is_as_large_as_half_of_it_holds() -> None:
    ram = 100 * MIB
    fit = fitted(ram, Wishes(0, fewest_cells=1024))
    assert 1024 < fit.num_cells < TRAINED
    assert needed(fit.num_cells) <= ram // 2 < needed(fit.num_cells + 512)
    assert f"{fit.num_cells:,} tokens of context instead of 65,536: " in fit.line


def test_a_context_is_never_larger_than_the_most_nor_smaller_than_the_fewest() -> None:
    assert fitted(1 << 40, Wishes(0, most_cells=4096)).num_cells == 4096
    assert fitted(40 * MIB, Wishes(0, fewest_cells=16384)).num_cells == 16384


def test_a_context_that_was_asked_for_is_kept_if_ram_holds_it_at_all() -> None:
    enough = needed(32768) + MIB
    assert fitted(enough, Wishes(32768)).num_cells == 32768
    with pytest.raises(OutOfMemoryError) as raised:
        fitted(enough // 2, Wishes(32768))
    told = str(raised.value)
    assert re.search(r"a context of 32,768 tokens needs [\d.]+ MiB of RAM, and [\d.]+ MiB are free", told)
    assert "a smaller --ctx" in told
    assert "--gpu-layers" not in told, "there is no GPU"


def test_weights_count_where_they_are_not_in_a_file() -> None:
    enough = needed(32768) + MIB // 2
    assert fitted(enough, Wishes(32768)).num_cells == 32768
    for model in (ModelSettings(mmap=False), ModelSettings(mlock=True)):
        with pytest.raises(OutOfMemoryError, match="a context of 32,768 tokens needs"):
            fitted(enough, Wishes(32768), model)


def test_what_every_layer_is_split_by_is_not_fitted() -> None:
    fit = fitted(1 << 40, Wishes(0), ModelSettings(split_mode="row"))
    assert (fit.num_cells, fit.line) == (0, "nothing was chosen: --split-mode row splits every layer")


def test_a_file_that_is_no_model_is_left_for_loading_to_refuse(tmp_path: Path) -> None:
    bad = tmp_path / "cut.gguf"
    bad.write_bytes(path().read_bytes()[:3000])
    assert fit_model(bad, ModelSettings(), CONTEXT, Wishes(0)) == Fit(ModelSettings(), 0)


PROGRAM = """
import resource, sys
from dataclasses import replace
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import OutOfMemoryError

large = ContextSettings(num_cells=1 << 20, num_sequences=1, threads=1, kv_type="f32")
LlamaEngine.open(sys.argv[1], replace(large, num_cells=1024)).close()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20),) * 2)
try:
    LlamaEngine.open(sys.argv[1], large)
except OutOfMemoryError as error:
    print(error)
LlamaEngine.open(sys.argv[1], replace(large, num_cells=1024)).close()
print("lives on")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs a system that limits the memory of a process")
def test_a_context_without_memory_is_an_error_with_numbers_and_flags() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, path()], capture_output=True, text=True, check=True)
    told, last = done.stdout.splitlines()
    assert "no memory for a context of 1,048,576 tokens and 1 sequences for" in told
    assert re.search(r"It needs \d\.\d GiB in RAM \(weights 831 KiB; [\d.]+ [GM]iB free\)\. Give a smaller --ctx", told)
    assert last == "lives on"
