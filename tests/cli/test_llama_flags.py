"""A command line written for llama-server works with `leftoff serve` in front."""

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from leftoff.cli import serve
from leftoff.cli.flags import CommandLine, settings_from
from leftoff.cli.llama_flags import FOREIGN, Takes, ignored_lines, sampling_of
from leftoff.config import NO_LIMIT, Settings, definitions
from leftoff.hub.reference import default_model
from leftoff.sampling import Sampling
from leftoff.setting import SettingError, template_values


def parse(line: str) -> argparse.Namespace:
    parser = CommandLine(prog="leftoff")
    serve.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *shlex.split(line)])


def settings(line: str) -> Settings:
    return serve.lineup_of(parse(line)).first


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
        alias=("qwen",),
        host="0.0.0.0",
        port=9000,
        api_key=("secret",),
        slots=4,
        ctx=131072,
        ram=8192,
        threads=8,
        threads_batch=16,
        gpu_layers=99,
        mlock=True,
        mmap=False,
        flash_attn="on",
        batch=4096,
        ubatch=1024,
        cache_type_k="q8_0",
        cache_type_v="q8_0",
    )
    lines = ignored_lines(parse(line).ignored)
    assert sampling_of(parse(line)) == {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}
    assert "ignored: --jinja, --metrics, --cont-batching: always so here" in lines
    assert any("--ctx-checkpoints, --checkpoint-every-n-tokens: the cache chooses" in line for line in lines)


def test_how_tokens_are_chosen_where_no_request_says() -> None:
    line = "-s 7 --repeat-penalty 1.1 --typical-p 0.9 --mirostat 2 --mirostat-ent 4 --repeat-last-n -1"
    given = sampling_of(parse(line))
    assert replace(Sampling(temperature=0.8), **given) == Sampling(
        temperature=0.8, seed=7, repeat_penalty=1.1, typical_p=0.9, mirostat=2, mirostat_tau=4.0, repeat_last_n=-1
    )
    assert sampling_of(parse("--seed -1")) == {"seed": None}
    assert sampling_of(parse("")) == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--temp hot", "argument --temp/--temperature: 'hot' is not a number"),
        ("--top-k 1.5", "argument --top-k: '1.5' is not a whole number"),
        ("--top-p 2", "argument --top-p: top_p is 2.0: must be between 0 and 1"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    with pytest.raises(SystemExit):
        parse(line)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("line", ["-ax", "-cmx 512", "-mmdx none", "-mmodel.gguf", "model.gguf -ax"])
def test_an_unknown_short_flag_is_not_a_known_one_with_a_value(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(line)
    assert exit_.value.code == 2
    (flag,) = (word for word in line.split() if word.startswith("-"))
    error = capsys.readouterr().err
    assert f"unrecognized arguments: {flag}" in error
    assert "leftoff serve --help" in error


def test_a_short_flag_may_have_its_number_at_once() -> None:
    assert settings("-t8 -c4096 -ngl=3") == Settings(alias=(default_model().stem,), threads=8, ctx=4096, gpu_layers=3)


def test_a_cache_without_a_limit() -> None:
    assert settings("-cram -1").ram == NO_LIMIT


def test_a_command_line_of_the_hub() -> None:
    assert settings("-hf org/repo:Q8_0 --jinja -ngl all -fa").model == "org/repo:Q8_0"


@pytest.mark.parametrize("flag", ["-fa", "--flash-attn", "-fit", "--fit", "-cmoe", "--mlock"])
def test_a_flag_whose_value_may_be_left_out_swallows_no_model(flag: str) -> None:
    assert settings(f"{flag} model.gguf").model == "model.gguf"
    assert settings(f"{flag} off model.gguf").model == "model.gguf"


def test_a_command_line_for_several_gpus() -> None:
    line = (
        "model.gguf -dev CUDA0,CUDA1 -sm row -ts 3/1 -mg 1 -ncmoe 12 -cmoe -ot exps=CPU,attn=CUDA0 --override-tensor "
        "norm=CPU -fit off -fitt 512,2048 -fitc 4096 -ctk q8_0"
    )
    assert settings(line) == Settings(
        model="model.gguf",
        alias=("model",),
        device="CUDA0,CUDA1",
        split_mode="row",
        tensor_split="3/1",
        main_gpu=1,
        n_cpu_moe=12,
        cpu_moe=True,
        override_tensor=("exps=CPU", "attn=CUDA0", "norm=CPU"),
        fit=False,
        fit_target="512,2048",
        fit_ctx=4096,
        cache_type_k="q8_0",
    )
    assert parse(line).ignored == []


@pytest.mark.parametrize(
    ("mode", "mmap", "mlock"),
    [
        ("auto", True, False),
        ("none", False, False),
        ("mmap", True, False),
        ("mlock", False, True),
        ("mmap+mlock", True, True),
        ("dio", False, False),
    ],
)
def test_a_load_mode_says_how_the_file_is_read(mode: str, mmap: bool, mlock: bool) -> None:
    given = settings(f"--load-mode {mode} model.gguf")
    assert (given.mmap, given.mlock) == (mmap, mlock)


def test_each_foreign_flag_is_accepted_or_refused_and_none_is_a_setting() -> None:
    own = {option for d in definitions() for option in (d.option, *d.aliases)}
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
        assert args.positional == ["model.gguf"]


@pytest.mark.parametrize("foreign", [f for f in FOREIGN if f.refused], ids=lambda f: f.reason)
def test_what_would_be_dangerous_to_ignore_is_refused(capsys: pytest.CaptureFixture[str], foreign: object) -> None:
    (entry,) = (f for f in FOREIGN if f is foreign)
    for option, takes in entry.options:
        with pytest.raises(SystemExit):
            parse(f"{option} {'' if takes is Takes.NOTHING else 'x'}")
        assert f"{option}: {entry.reason}" in capsys.readouterr().err


def test_adapters_are_given_as_to_llama_server() -> None:
    line = "--lora x.gguf --lora-scaled y.gguf:0.5,z.gguf:-1 --lora-init-without-apply --control-vector-scaled v.gguf:2"
    given = settings_from(parse(f"{line} --control-vector v.gguf --control-vector-layer-range 2 9"), {})
    assert given.lora == ("x.gguf", "y.gguf:0.5", "z.gguf:-1")
    assert given.lora_init_without_apply
    assert given.control_vector == ("v.gguf:2", "v.gguf")
    assert given.control_vector_layers == "2,9"


@pytest.mark.parametrize("line", ["--rope-scale 2", "--attention causal"])
def test_what_the_model_cannot_do_is_not_passed_over(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit):
        parse(line)
    assert "not supported yet" in capsys.readouterr().err


def test_devices_are_listed_and_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse("--list-devices")
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("Available devices:\n")


def test_nothing_is_said_where_nothing_is_ignored() -> None:
    assert ignored_lines(parse("model.gguf --slots 2").ignored) == []


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfirst\n\n second \n#third\n")
    assert settings(f"--api-key-file {file} --api-key third").api_key == ("first", "second", "third")


@pytest.mark.parametrize("content", [None, "", "\n \n", "# no key\n"])
def test_a_file_without_keys_never_means_an_open_server(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SystemExit):
        parse(f"--api-key-file {file}")


def test_a_file_of_keys_that_is_not_there_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--api-key-file /nope")
    assert "/nope cannot be read (No such file or directory)" in capsys.readouterr().err


def test_two_models_are_refused_and_the_same_twice_is_one() -> None:
    with pytest.raises(SettingError, match=r"two models, a\.gguf and --model b\.gguf: name them"):
        settings("a.gguf -m b.gguf")
    assert settings("a.gguf -m a.gguf").model == "a.gguf"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("""--chat-template-kwargs '{"a": 1, "b": [2]}' --chat-template-kwargs '{"a": 3}'""", {"a": 3, "b": [2]}),
        ("--reasoning off", {"enable_thinking": False}),
        ("-rea on", {"enable_thinking": True}),
        ("--reasoning auto", {}),
        ("--reasoning-budget 0", {"enable_thinking": False}),
        ("--reasoning-budget -1 --reasoning-format deepseek", {}),
        ("--reasoning-effort low", {"reasoning_effort": "low", "enable_thinking": True}),
        ("--reasoning-effort none", {"reasoning_effort": "none", "enable_thinking": False}),
        ("--reasoning-effort default", {}),
        ("--reasoning-preserve", {"preserve_thinking": True}),
        ("""--reasoning off --chat-template-kwargs '{"a": 1}'""", {"a": 1, "enable_thinking": False}),
    ],
)
def test_what_the_template_is_told_of_reasoning(line: str, values: dict[str, object]) -> None:
    assert template_values(settings(line).chat_template_kwargs) == values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--reasoning-budget 4096", "give 0 for none, -1 for any, or --reasoning-effort low"),
        ("--reasoning maybe", "'maybe' is neither on nor off, nor auto"),
        ("--reasoning-format none", "'none': send it with each request, as reasoning_format"),
        ("--chat-template-kwargs [1]", "'[1]' is no JSON object: give one such as"),
        ("""--chat-template-kwargs '{"tools": []}'""", "'tools' comes from each request: leave it out"),
    ],
)
def test_what_the_template_cannot_be_told_is_refused(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    with pytest.raises(SystemExit):
        parse(line)
    assert message in capsys.readouterr().err
