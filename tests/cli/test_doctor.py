"""`leftoff doctor`, from its flags to what it prints, on real tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest

from leftoff import __version__
from leftoff.cli.main import main
from leftoff.cli.report import report_keys
from leftoff.engine import gguf
from leftoff.engine.binding.library import load_library
from leftoff.engine.binding.search import ENVIRONMENT
from leftoff.engine.errors import EngineError
from leftoff.hub.reference import default_model
from tests.factory import model_path
from tests.factory.heads import LAYERS, head_path
from tests.hubs import serving_hub

Capture = pytest.CaptureFixture[str]

KINDS = {"llama": "attention", "qwen35": "hybrid", "mamba2": "recurrent", "gemma3": "window"}
FLAGS = ("--threads", "1", "--ctx", "512")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences stay on one line, where a test can find them."""
    monkeypatch.setenv("COLUMNS", "300")


def doctor_json(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["doctor", "--json", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert isinstance(report, dict)
    return report


def keys_of(value: object, prefix: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [prefix]
    return [key for name, inner in value.items() for key in keys_of(inner, f"{prefix}.{name}".lstrip("."))]


def test_without_a_model_it_looks_at_the_one_that_comes_with_leftoff(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    output = capsys.readouterr()
    library = load_library()
    assert str(library.path) in output.out
    assert library.build.version in output.out
    assert str(default_model()) in output.out
    assert output.err == ""


def test_a_name_of_the_hub_is_the_file_that_was_downloaded(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    with serving_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos["unsloth/Qwen3.5-4B-GGUF"] = {"Qwen3.5-4B-Q4_K_M.gguf": model_path("llama").read_bytes()}
        report = doctor_json(capsys, "qwen3.5-4b:Q4_K_M", *FLAGS)
    assert report["model"]["architecture"] == "llama"
    assert report["model"]["path"].endswith("/Qwen3.5-4B-Q4_K_M.gguf")


@pytest.mark.parametrize("name", ["qwen3.5-4x", "foo"])
def test_a_name_that_nothing_has_is_told(capsys: Capture, name: str) -> None:
    assert main(["doctor", name]) == 1
    assert f"{name} is neither a file here nor the name of a model: " in capsys.readouterr().err


def test_json_tells_of_library_machine_and_model(capsys: Capture) -> None:
    report = doctor_json(capsys, str(model_path("qwen35")), *FLAGS)
    assert report["leftoff"] == __version__
    assert report["library"]["cpu_features"]
    assert report["machine"]["memory_bytes"] > 1 << 20
    assert report["model"]["memory_kind"] == "hybrid"


def test_json_has_exactly_the_documented_keys_and_obeys_the_flags(capsys: Capture) -> None:
    report = doctor_json(capsys, str(model_path("qwen35")), *FLAGS)
    assert keys_of(report) == report_keys()
    assert (report["model"]["context"], report["model"]["threads"]) == (512, 1)


def test_the_keys_that_programs_rely_on_are_still_there() -> None:
    relied_on = {
        "leftoff",
        "library.path",
        "library.version",
        "machine.threads",
        "model.memory_kind",
        "model.kv_bytes_per_token",
        "model.snapshot_bytes_at_1k",
        "model.snapshot_bytes_at_32k",
        "model.mtp_problem",
        "model.fingerprint",
        "model.measurements.prefill.tokens_per_s",
        "model.measurements.decode_tokens_per_s",
        "model.measurements.page.load_bytes_per_s",
        "model.measurements.snapshot.load_bytes_per_s",
        "model.measurements.memcpy_bytes_per_s",
    }
    assert relied_on <= set(report_keys())


def test_json_says_null_where_the_memory_has_no_such_part(capsys: Capture) -> None:
    attention = doctor_json(capsys, str(model_path("llama")), *FLAGS)["model"]
    recurrent = doctor_json(capsys, str(model_path("mamba2")), *FLAGS)["model"]
    assert attention["kv_bytes_per_token"] > 0
    assert attention["snapshot_bytes_at_1k"] is None
    assert attention["measurements"]["snapshot"] is None
    assert recurrent["kv_bytes_per_token"] is None
    assert recurrent["measurements"]["page"] is None
    assert recurrent["snapshot_bytes_at_1k"] == recurrent["snapshot_bytes_at_32k"] > 0


@pytest.mark.parametrize(("architecture", "kind"), KINDS.items())
def test_people_read_the_kind_of_memory_and_what_it_means(capsys: Capture, architecture: str, kind: str) -> None:
    assert main(["doctor", str(model_path(architecture)), *FLAGS]) == 0
    output = capsys.readouterr()
    (line,) = (line for line in output.out.splitlines() if "memory kind" in line)
    assert f" {kind}. It" in line
    assert "tokens/s" in output.out
    assert not {"\x1b", "\r", "\b"} & set(output.out), "no progress bar where nobody watches"
    assert output.err == ""


def test_of_a_head_it_says_for_which_model_it_is(capsys: Capture) -> None:
    path = head_path("llama")
    head = doctor_json(capsys, str(path))["head"]
    assert (head["architecture"], head["model_width"], head["layers"]) == ("eagle3", 64, list(LAYERS))
    assert head["model_tokens"] == gguf.read_header(model_path("llama")).num_tokens
    assert main(["doctor", str(path)]) == 0
    output = capsys.readouterr().out
    assert "an EAGLE-3 head" in output
    assert "hidden states of 64 numbers, inputs of layers 1, 2, 3" in output
    assert f"--model-draft {path}" in output


def test_the_name_of_a_file_is_no_markup_and_no_emoji(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / ":cat: [bold].gguf"
    path.write_bytes(head_path("llama").read_bytes())
    assert main(["doctor", str(path)]) == 0
    assert f"--model-draft {path}" in capsys.readouterr().out


def test_a_damaged_head_is_told(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    path.write_bytes(head_path("llama").read_bytes()[:3000])
    assert main(["doctor", str(path)]) != 0
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"PK\x03\x04 something else"], ids=["missing", "not a GGUF file"])
def test_a_file_that_is_no_model_gets_one_clear_line(capsys: Capture, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    expected = f"there is no model file at {path}" if content is None else f"{path} is not a GGUF file"

    assert main(["doctor", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"leftoff: {expected}")
    assert output.err.count("\n") == 1

    assert main(["doctor", str(path), "--json"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["error"].startswith(expected)
    assert output.err == ""


def test_a_library_that_is_missing_gets_one_line_that_says_how_to_fix_it(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "libllama.so"))
    load_library.cache_clear()
    try:
        assert main(["doctor"]) == 1
    finally:
        load_library.cache_clear()
    error = capsys.readouterr().err
    assert str(tmp_path / "libllama.so") in error
    assert "pip install" in error
    assert error.count("\n") == 1


def test_a_message_of_several_lines_becomes_one(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise EngineError("first\nsecond")

    monkeypatch.setattr("leftoff.cli.doctor.load_library", refuse)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "leftoff: first; second\n"


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_context_that_cannot_be_is_refused_by_name(capsys: Capture, value: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", f"--ctx={value}"])
    assert exit_.value.code == 2
    assert f"--ctx: {value!r} is not a positive whole number" in capsys.readouterr().err


def test_a_context_that_is_too_small_is_refused_by_the_name_of_the_flag(capsys: Capture) -> None:
    assert main(["doctor", "--ctx", "5"]) == 1
    assert capsys.readouterr().err == "leftoff: --ctx 5: must be at least 32\n"


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_the_commands(capsys: Capture, arguments: list[str]) -> None:
    if arguments:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 0
    else:
        assert main(arguments) == 0
    assert "doctor" in capsys.readouterr().out


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"leftoff {__version__}\n"
