"""Two models with room for one, on the CPU."""

import json
from pathlib import Path

from lab.gpu.__main__ import main

_LONG = 512


def test_a_conversation_goes_on_after_another_model_has_worked(tmp_path: Path) -> None:
    first, second, out = (tmp_path / name for name in ("first.gguf", "second.gguf", "out.json"))
    assert main(["model", str(first), "--size", "small"]) == 0
    assert main(["model", str(second), "--size", "small", "--kind", "window-128"]) == 0
    options = ["--long", str(_LONG), "--threads", "1", "--folder", str(tmp_path), "--json", str(out)]
    models = ["--model", str(first), "--second", str(second)]
    assert main([*models, "--llama-server", "xllamacpp", *options, "--only", "swaps"]) == 0
    swapped, awake, grown = json.loads(out.read_text())["rows"]
    assert max(swapped["leftoff"]["computed"]) < _LONG / 4, "it was read again"
    assert swapped["leftoff"]["computed"] == awake["leftoff"]["computed"]
    assert 0 < grown["leftoff"]["values"][0] < 2
