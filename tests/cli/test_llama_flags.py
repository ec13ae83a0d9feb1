"""A command line written for llama-server works with `leftoff serve` in front."""

import argparse
import shlex
from pathlib import Path

import pytest

from leftoff.cli import serve
from leftoff.cli.flags import CommandLine
from leftoff.cli.llama_flags import FOREIGN, Takes, ignored_lines
from leftoff.config import SettingError, Settings, definitions


def parse(line: str) -> argparse.Namespace:
    parser = CommandLine(prog="leftoff")
    serve.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *shlex.split(line)])


def settings(line: str) -> Settings:
    return serve.settings_of(parse(line))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for definition in definitions():
        monkeypatch.delenv(definition.environment, raising=False)


def test_a_command_line_as_people_write_it() -> None:
    line = (
        "-m models/qwen3-next-Q4_K_M.gguf -c 131072 -np 2 -t 8 -tb 16 -ngl 99 -fa on -b 4096 -ub 1024 -ctk q8_0 "
        "-ctv q8_0 --cache-ram 8192 --ctx-checkpoints 32 --checkpoint-every-n-tokens 4096 --jinja --no-warmup "
        "--alias qwen --host 0.0.0.0 --port 9000 --api-key secret --metrics --slots --no-webui --threads-http 4 "
        "--timeout 600 --mlock --no-mmap --cont-batching --temp 0.7 --top-p 0.8 --top-k 20 --min-p 0 -n -1"
    )
    assert settings(line) == Settings(
        model="models/qwen3-next-Q4_K_M.gguf",
        alias="qwen",
        host="0.0.0.0",
        port=9000,
        api_key=("secret",),
        slots=4,
        ctx=131072,
        ram=8192,
        threads=8,
        gpu_layers=99,
        batch=4096,
        ubatch=1024,
        kv_type="q8_0",
    )
    lines = ignored_lines(parse(line).ignored)
    assert "ignored: --temp, --top-p, --top-k, --min-p: clients send it with each request" in lines
    assert "ignored: -fa, --jinja, --metrics, --cont-batching: always so here" in lines
    assert any("--ctx-checkpoints, --checkpoint-every-n-tokens: the cache chooses" in line for line in lines)


def test_a_command_line_of_the_hub() -> None:
    assert settings("-hf org/repo:Q8_0 --jinja -ngl all -fa").model == "org/repo:Q8_0"


@pytest.mark.parametrize("flag", ["-fa", "--flash-attn", "--fit"])
def test_a_flag_whose_value_may_be_left_out_swallows_no_model(flag: str) -> None:
    assert settings(f"{flag} model.gguf").model == "model.gguf"
    assert settings(f"{flag} auto model.gguf").model == "model.gguf"


def test_each_foreign_flag_is_accepted_or_refused_and_none_is_a_setting() -> None:
    own = {option for d in definitions() for option in (d.option, *d.flag.names)}
    options = [option for foreign in FOREIGN for option, _ in foreign.options]
    assert not own & {*options}
    assert len({*options}) == len(options)


@pytest.mark.parametrize("foreign", [f for f in FOREIGN if not f.refused], ids=lambda f: f.reason)
def test_what_is_ignored_is_named_with_the_reason(foreign: object) -> None:
    (entry,) = (f for f in FOREIGN if f is foreign)
    for option, takes in entry.options:
        value = "" if takes is Takes.NOTHING else "1"
        args = parse(f"{option} {value} model.gguf")
        assert args.ignored == [(option, entry.reason)]
        assert args.positional == "model.gguf"


@pytest.mark.parametrize("foreign", [f for f in FOREIGN if f.refused], ids=lambda f: f.reason)
def test_what_would_be_dangerous_to_ignore_is_refused(capsys: pytest.CaptureFixture[str], foreign: object) -> None:
    (entry,) = (f for f in FOREIGN if f is foreign)
    for option, takes in entry.options:
        with pytest.raises(SystemExit):
            parse(f"{option} {'' if takes is Takes.NOTHING else 'x'}")
        assert f"{option}: {entry.reason}" in capsys.readouterr().err


def test_nothing_is_said_where_nothing_is_ignored() -> None:
    assert ignored_lines(parse("model.gguf --slots 2").ignored) == []


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first\n\n second \n")
    assert settings(f"--api-key-file {file} --api-key third").api_key == ("first", "second", "third")


@pytest.mark.parametrize("content", [None, "", "\n \n"])
def test_a_file_without_keys_never_means_an_open_server(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SystemExit):
        parse(f"--api-key-file {file}")


def test_keys_and_values_of_different_types_are_refused() -> None:
    with pytest.raises(SettingError, match=r"--cache-type-v q8_0: keys are f16.* --kv-type q8_0 for both"):
        settings("-ctv q8_0")


def test_two_models_are_refused_and_the_same_twice_is_one() -> None:
    with pytest.raises(SettingError, match=r"two models, a\.gguf and --model b\.gguf: give one"):
        settings("a.gguf -m b.gguf")
    assert settings("a.gguf -m a.gguf").model == "a.gguf"
