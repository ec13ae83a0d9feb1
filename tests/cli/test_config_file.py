"""leftoff.toml: what it may say, and how it tells what is wrong."""

from pathlib import Path

import pytest

from leftoff.cli.config_file import ConfigFile, read_config
from leftoff.cli.flags import CommandLine, add_settings, settings_from
from leftoff.config import BILLING_LINE, NO_LIMIT, Settings, definitions
from leftoff.setting import SettingError, template_values


def written(folder: Path, text: str) -> ConfigFile:
    path = folder / "leftoff.toml"
    path.write_text(text)
    return read_config(str(path))


def test_settings_have_the_names_of_their_flags_and_the_values_of_toml(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        port = 9000
        cache-ram = -1
        disk = "off"
        api_key = ["one", "two"]
        drop-header = ["date: .*"]
        page = false
        flash-attn = true
        temp = 1
        [models.small]
        top-p = 0.9
        model = "org/repo:q4"
        aliases = ["claude-*", "gpt-*"]
        ctx-size = 4096
        pinned = true
        [models]
        "big.one" = "other/repo"
        """,
    )
    assert config.values == {
        "port": 9000,
        "ram": NO_LIMIT,
        "disk": 0,
        "api_key": ("one", "two"),
        "drop_header": (BILLING_LINE, "date: .*"),
        "page": False,
        "flash_attn": "on",
    }
    assert config.models == {
        "small": {"model": "org/repo:q4", "alias": ("claude-*", "gpt-*"), "ctx": 4096, "pinned": True},
        "big.one": {"model": "other/repo"},
    }
    assert config.sampling == {"": {"temperature": 1.0}, "small": {"top_p": 0.9}, "big.one": {}}


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each.name)
def test_every_setting_can_be_written_but_the_file_itself(tmp_path: Path, definition: object) -> None:
    each = next(one for one in definitions() if one is definition)
    text = each.choices[-1] if each.choices else str(each.default)
    shown = "[]" if each.is_list else text.lower() if each.is_switch else f'"{text}"'
    if each.name == "config" or (each.is_list and not each.may_be_empty):
        with pytest.raises(SettingError):
            written(tmp_path, f"{each.option[2:]} = {shown}")
    else:
        assert written(tmp_path, f"{each.option[2:]} = {shown}").values.keys() == {each.name}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prt = 80", "leftoff.toml: prt = 80: there is no such setting: did you mean port?"),
        ("wallpaper = 'red'", "wallpaper = 'red': there is no such setting: leftoff serve --help lists all"),
        ("port = 'http'", "leftoff.toml: port: 'http' is not a whole number, such as 8080"),
        ("port = true", "leftoff.toml: port: 'true' is not a whole number"),
        ("port = 70000", "port: 70000 must be between 0 and 65535"),
        ("slots = 1.5", "slots: '1.5' is not a whole number"),
        ("host = 127", 'host: 127 is no text: write "127"'),
        ("page = 'maybe'", "page: 'maybe' is neither on nor off"),
        ("api-key = []", "api-key: '' holds no value"),
        ("api-key = [1]", 'api-key: 1 is no text: write "1"'),
        ("temp = 'hot'", "leftoff.toml: temp: 'hot' is not a number"),
        ("top-p = 2", "top-p: top_p is 2.0: must be between 0 and 1"),
        ("[models.big]\ntenp = 1", "did you mean temp?"),
        ("pin = '('", r"pin: '\(' is not a regular expression"),
        ("ctx = 4096\nctx_size = 1", "ctx_size = 1: ctx is set twice: leave one of them out"),
        ("[models.big]\nctz = 1", r"\[models.big\] ctz = 1: there is no such setting: did you mean ctx\?"),
        ("[models.big]\nctx = 'x'", r"\[models.big\] ctx: 'x' is not a whole number"),
        ("[models.big]\nsleep-idle-seconds = '5m'", r"sleep-idle-seconds: '5m' is not a whole number, such as -1"),
        ("[models.big]\nport = 80", r"\[models.big\] port = 80: all models share it: write it above the first table"),
        ("[models.qwen3.5]\nctx = 1", r'no table \[models.qwen3.5\]: a model is a table \[models."qwen3.5"\]'),
        ("[model.big]\nctx = 1", r"no table \[model\]: a model is a table \[models.NAME\]"),
        ("models = ['a.gguf']", r"models = \['a.gguf'\] names none: write a table for each"),
        ("model = 'a'\n[models.b]\nmodel = 'b'", "model belongs to one model, and there are tables of models"),
        ("chat-template-kwargs = 1", "chat-template-kwargs: '1' is no JSON object: give one such as"),
        ("port 80", r"cannot be read \(.*line 1.*\): correct it, or give another file with --config"),
    ],
)
def test_what_is_wrong_names_the_file_the_key_and_the_way_out(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        written(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "chat-template-kwargs = {enable_thinking = false}",
        """chat-template-kwargs = '{"enable_thinking": false}'""",
        "[chat-template-kwargs]\nenable_thinking = false",
        "chat-template-kwargs = [{enable_thinking = true}, {enable_thinking = false}]",
    ],
)
def test_variables_of_the_template_are_a_table_or_a_text(tmp_path: Path, text: str) -> None:
    assert template_values(written(tmp_path, text).values["chat_template_kwargs"]) == {"enable_thinking": False}


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"nowhere.toml cannot be read \(No such file"):
        read_config(str(tmp_path / "nowhere.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match=r"bytes.toml cannot be read"):
        read_config(str(tmp_path / "bytes.toml"))


def test_paths_are_those_from_the_folder_of_the_file(tmp_path: Path) -> None:
    for name in ("a.gguf", "l.gguf", "poet"):
        (tmp_path / name).touch()
    config = written(
        tmp_path,
        """
        cache-dir = "kept"
        models-dir = "~/models"
        [models.a]
        model = "a.gguf"
        prewarm = ["last"]
        lora = ["l.gguf", "x=l.gguf:0.5", "far=/else/where.gguf", "poet=poet"]
        control-vector = ["l.gguf:-1"]
        [models.b]
        model = "org/repo"
        """,
    )
    file = tmp_path / "l.gguf"
    assert config.values == {"cache_dir": str(tmp_path / "kept"), "models_dir": str(Path.home() / "models")}
    assert config.models["a"] == {
        "model": str(tmp_path / "a.gguf"),
        "prewarm": ("last",),
        "lora": (str(file), f"x={file}:0.5", "far=/else/where.gguf", f"poet={tmp_path / 'poet'}"),
        "control_vector": (f"{file}:-1",),
    }
    assert config.models["b"] == {"model": "org/repo"}


def test_it_is_found_here_before_the_one_for_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here, home / "leftoff"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    assert read_config() == ConfigFile()
    (home / "leftoff" / "leftoff.toml").write_text("port = 1")
    assert read_config().values == {"port": 1}
    (here / "leftoff.toml").write_text("port = 2")
    assert read_config().values == {"port": 2}
    assert read_config("off") == ConfigFile()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "leftoff.toml"
    path.write_text("port = 1\nram = 64\nslots = 3")

    def settings(*arguments: str, **environment: str) -> Settings:
        parser = CommandLine(prog="test")
        add_settings(parser, ("port", "ram", "slots"))
        return settings_from(parser.parse_args(["--config", str(path), *arguments]), environment)

    seen = settings("--port", "3", LEFTOFF_PORT="2", LEFTOFF_RAM="128")
    assert (seen.port, seen.ram, seen.slots) == (3, 128, 3)


def test_the_example_is_that_of_the_page_and_can_be_read() -> None:
    root = Path(__file__).parents[2]
    example = root / "examples" / "leftoff.toml"
    assert f"```toml\n{example.read_text()}```" in (root / "docs" / "models.md").read_text()
    assert [*read_config(str(example)).models] == ["small", "big"]
