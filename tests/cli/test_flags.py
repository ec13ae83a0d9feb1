"""Settings from the command line and the environment, in that order; and the page about them."""

import argparse
import re
from pathlib import Path

import pytest

from leftoff.cli.flags import (
    GROUPS,
    MOST_USED,
    CommandLine,
    add_settings,
    grouped,
    settings_from,
    settings_page,
)
from leftoff.cli.main import main
from leftoff.config import ALL_LAYERS, BILLING_LINE, Settings, definitions
from leftoff.errors import meant
from leftoff.sampling import PARAMETERS
from leftoff.setting import SettingError

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
VALUES = {"int": "77", "str": "text", "tuple": "one"}
URLS = dict.fromkeys(("store", "index", "advertise", "otel"), "redis://host:1/0")
VALUES_OF = URLS | {
    "config": "off",
    "cors": "https://chat.example",
    "control_vector_layers": "2,9",
    "tensor_split": "3,1",
    "fit_target": "512",
    "override_tensor": "exps=CPU",
    "chat_template_kwargs": '{"enable_thinking": false}',
}


def settings(*arguments: str, **environment: str) -> Settings:
    return settings_from(parse(*arguments), environment)


def parse(*arguments: str) -> argparse.Namespace:
    parser = CommandLine(prog="test")
    parser.add_argument("positional", nargs="?")
    add_settings(parser)
    return parser.parse_args(arguments)


def other_value(name: str) -> str:
    (definition,) = (d for d in definitions() if d.name == name)
    kind = type(definition.default).__name__
    return definition.choices[-1] if definition.choices else VALUES_OF.get(name, VALUES[kind])


def test_nothing_given_gives_the_defaults() -> None:
    assert settings() == Settings()


@pytest.mark.parametrize("name", [d.name for d in definitions() if not d.is_switch])
def test_every_setting_can_be_given_by_each_of_its_flags_and_by_the_environment(name: str) -> None:
    (definition,) = (d for d in definitions() if d.name == name)
    text = other_value(name)
    by_environment = settings(**{definition.environment: text})
    assert getattr(by_environment, name) != definition.default
    for option in (definition.option, *definition.aliases):
        assert settings(option, text) == by_environment
        assert settings(f"{option}={text}") == by_environment


@pytest.mark.parametrize("name", [d.name for d in definitions() if d.is_switch])
def test_a_switch_is_turned_on_and_off(name: str) -> None:
    (definition,) = (d for d in definitions() if d.name == name)
    option = definition.option
    off = f"--no-{option[2:]}"
    for is_on, flag, words in ((True, option, ("on", "1", "Yes")), (False, off, ("off", "0", "false"))):
        assert getattr(settings(flag), name) is is_on
        for word in words:
            assert getattr(settings(option, word), name) is is_on
            assert getattr(settings(f"{option}={word}"), name) is is_on
            assert getattr(settings(**{definition.environment: word}), name) is is_on
    with pytest.raises(SettingError, match=r"'maybe' is neither on nor off"):
        settings(**{definition.environment: "maybe"})


def test_a_switch_swallows_no_model() -> None:
    args = parse("--supervise", "model.gguf")
    assert settings_from(args, {}).supervise
    assert args.positional == "model.gguf"


@pytest.mark.parametrize("word", ["off", "none", "0"])
def test_no_disk(word: str) -> None:
    assert settings("--disk", word).disk == settings(LEFTOFF_DISK=word).disk == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ctx", "10"), "--ctx 10: must be at least 32"),
        (("--ctx", "100", "--slots", "200"), "--ctx 100: must be at least 201"),
        (("--batch", "32", "--slots", "32"), "--batch 32: must be at least 33"),
        (("--slots", "200", "--parked", "100"), "--slots 200 and --parked 100: at most 255 together"),
    ],
)
def test_sizes_that_do_not_go_together_name_the_flag(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        settings(*arguments)


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    assert settings(LEFTOFF_PORT="1").port == 1
    assert settings("--port", "2", LEFTOFF_PORT="1").port == 2
    assert settings("--api-key", "flag", LEFTOFF_API_KEY="environment").api_key == ("flag",)


def test_a_number_in_the_environment_that_is_empty_is_not_there() -> None:
    assert settings(LEFTOFF_PORT="").port == Settings().port


def test_lists_grow_on_top_of_the_default_and_an_empty_value_empties_them() -> None:
    assert settings("--drop-header", "a", "--drop-header", "b").drop_header == (BILLING_LINE, "a", "b")
    assert settings("--drop-header", "").drop_header == ()
    assert settings("--drop-header", "", "--drop-header", "a").drop_header == ("a",)
    assert settings(LEFTOFF_DROP_HEADER="a,b\nc").drop_header == (BILLING_LINE, "a,b", "c")
    assert settings(LEFTOFF_DROP_HEADER="").drop_header == ()
    assert settings("--api-key", "a, b", "--api-key", "c").api_key == ("a", "b", "c")


def test_words_that_llama_server_has_for_numbers() -> None:
    assert settings("-ngl", "all").gpu_layers == ALL_LAYERS == -2
    assert settings("-ngl", "-1", "-n", "-1").gpu_layers == -1
    assert settings("-np", "-1").slots == settings("-np", "auto").slots == Settings().slots
    assert settings("-t", "-1").threads == 0


@pytest.mark.parametrize(("word", "meaning"), [("enabled", "on"), ("1", "on"), ("False", "off"), ("AUTO", "auto")])
def test_words_that_llama_server_has_for_flash_attention(word: str, meaning: str) -> None:
    assert settings("-fa", word).flash_attn == settings(LEFTOFF_FLASH_ATTN=word).flash_attn == meaning
    assert settings("-fa").flash_attn == "on"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-ts", "3,x"), "'3,x' is no list of numbers: give one for each device, such as 3,1"),
        (("-ts", "3,-1"), "'3,-1' is no list of numbers"),
        (("-ot", "exps"), "'exps' names no buffer type: give PATTERN=TYPE"),
        (("-ot", "(=CPU"), r"'\(' is not a regular expression"),
        (("-sm", "both"), "'both' is unknown: must be one of none, layer, row, tensor"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit):
        settings(*arguments)
    assert re.search(message, capsys.readouterr().err)


def test_small_values_without_flash_attention_are_refused() -> None:
    message = "--flash-attn off: llama.cpp keeps values of type q8_0 only with flash attention: .*--cache-type-v f16"
    for values in (["--kv-type", "q8_0"], ["-ctv", "q8_0"]):
        with pytest.raises(SettingError, match=message):
            settings("-fa", "off", *values)
    assert settings("-fa", "off", "-ctk", "q8_0").cache_type_k == "q8_0"


@pytest.mark.parametrize("arguments", [["--slots"], ["--slots", "-c", "512"], ["--slots", "model.gguf"]])
def test_slots_without_a_number_are_the_default_and_swallow_nothing(arguments: list[str]) -> None:
    args = parse(*arguments)
    assert settings_from(args, {}).slots == Settings().slots
    assert args.positional == ("model.gguf" if "model.gguf" in arguments else None)


def test_slots_with_a_number() -> None:
    assert settings("--slots", "2").slots == settings("--slots=2").slots == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "http"], "argument --port: 'http' is not a whole number, such as 8080"),
        (["--port", "70000"], "argument --port: 70000 must be between 0 and 65535"),
        (["-ngl", "many"], "'many' is not a whole number, or 'all' or 'auto'"),
        (["--overflow", "drop"], "argument --overflow: 'drop' is unknown: must be one of error, cut"),
        (["--pin", "("], "argument --pin: '(' is not a regular expression"),
        (["--api-key", ""], "argument --api-key: '' holds no value: give one, or leave it out"),
        (["--prt", "80"], "unrecognized arguments: --prt: did you mean --port?"),
        (["--prot=80"], "unrecognized arguments: --prot=80: did you mean --port?"),
        (["--po", "80"], "unrecognized arguments: --po"),
        (["--xyzzy"], "unrecognized arguments: --xyzzy ("),
    ],
)
def test_a_bad_flag_gets_one_line_with_flag_value_and_way_out(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(*arguments)
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("LEFTOFF_PORT", "http", "LEFTOFF_PORT: 'http' is not a whole number"),
        ("LEFTOFF_RAM", "-5", "LEFTOFF_RAM: -5 must be between 0 and"),
        ("LEFTOFF_LOG_LEVEL", "all", "LEFTOFF_LOG_LEVEL: 'all' is unknown: must be one of debug"),
        ("LEFTOFF_API_KEY", " ", "LEFTOFF_API_KEY: ' ' holds no value"),
    ],
)
def test_a_bad_value_in_the_environment_is_refused_by_name(name: str, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        settings(**{name: text})


def test_help_describes_what_is_most_used_and_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    for title, definition in grouped():
        assert definition.option in shown
        assert (definition.help[:20] in shown) is (title == MOST_USED), definition.option
    assert "test --help-all" in shown


def test_every_setting_is_in_one_group() -> None:
    named = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(named) == sorted(definition.name for definition in definitions()), "add it to GROUPS in cli/flags.py"


def test_help_all_has_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help-all")
    shown = "".join(capsys.readouterr().out.split())  # lines are broken also at hyphens
    for definition in definitions():
        assert definition.option in shown
        assert "".join(definition.shown_default.split()) in shown


def test_the_page_in_docs_is_what_the_definitions_make() -> None:
    assert PAGE.read_text() == settings_page(), "run: python -m leftoff.cli.flags > docs/settings.md"


def test_the_page_has_a_row_of_five_cells_for_every_setting() -> None:
    settings, _, sampling = settings_page().partition("## Sampling")
    rows = [line for line in settings.splitlines() if line.startswith("| `--")]
    assert len(rows) == len(definitions())
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert sampling.count("\n| `--") == sum(bool(parameter.flags) for parameter in PARAMETERS)


def test_the_page_has_every_flag_of_the_server_that_is_no_llama_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help-all"])
    page = settings_page()
    for flag in {*re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)} - {"--help", "--help-all"}:
        assert f"`{flag}`" in page, flag


def test_models_may_stand_before_between_and_behind_flags() -> None:
    parser = CommandLine(prog="test")
    parser.add_argument("models", nargs="*")
    add_settings(parser)
    args = parser.parse_args(["a.gguf", "--port", "1", "b.gguf", "--supervise", "c.gguf"])
    assert (args.models, args.port, args.supervise) == (["a.gguf", "b.gguf", "c.gguf"], 1, True)
    assert parser.parse_args(["--port", "1"]).models == []
    with pytest.raises(SystemExit):
        parser.parse_args(["a.gguf", "--prt", "1", "b.gguf"])


@pytest.mark.parametrize(
    ("word", "hint"),
    [("--prot", ": did you mean --port?"), ("--Port", ": did you mean --port?"), ("--batches", ""), ("", "")],
)
def test_a_word_that_is_close_is_meant(word: str, hint: str) -> None:
    assert meant(word, ["--port", "--host"]) == hint
