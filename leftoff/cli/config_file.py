"""leftoff.toml: settings by the names of their flags, and the models of a server in tables `[models.NAME]`."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leftoff.config import definitions
from leftoff.errors import meant, reason_of
from leftoff.sampling import PARAMETERS
from leftoff.setting import Definition, SettingError, scaled_file_problem, with_path

Values = dict[str, Any]  # of settings, by their names

_FILE = "leftoff.toml"
_NO_FILE = ("off", "none")
_MODELS = "models"
_OF_A_MODEL = ("model", "alias")


@dataclass(frozen=True)
class ConfigFile:
    """Checked settings: of the server and of all models, and those of each model by its name."""

    path: Path | None = None
    values: Values = field(default_factory=dict)
    models: Mapping[str, Values] = field(default_factory=dict)
    sampling: Mapping[str, Values] = field(default_factory=dict)  # of the models by their names, and of all as ""


def read_config(named: str = "") -> ConfigFile:
    """The file that is named, or the one that is found. Without any, nothing is set."""
    path = Path(named).expanduser() if named else _found()
    if path is None or named in _NO_FILE:
        return ConfigFile()
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:  # no TOML, or no text at all
        problem = f"{path} cannot be read ({reason_of(error)})"
        raise SettingError(f"{problem}: correct it, or give another file with --config") from None
    models = tables.pop(_MODELS, {})
    if not isinstance(models, dict):
        raise SettingError(
            f'{path}: models = {models!r} names none: write a table for each, as [models.big] with model = "b.gguf"'
        )
    reader = _Reader(path)
    every = {name: reader.values(name, table) for name, table in models.items()}
    config = ConfigFile(path, reader.values("", tables), every, reader.sampling)
    for name in _OF_A_MODEL:
        if models and name in config.values:
            raise SettingError(
                f"{path}: {name} belongs to one model, and there are tables of models: write it into one"
            )
    return config


def _found() -> Path | None:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return next((path for path in (Path(_FILE), home / "leftoff" / _FILE) if path.is_file()), None)


class _Reader:
    """Reads the tables of one file. Its errors name the file, the table, the key and the value."""

    def __init__(self, path: Path) -> None:
        self.sampling: dict[str, Values] = {}
        self._path = path
        self._parameters = {_plain(flag): parameter for parameter in PARAMETERS for flag in parameter.flags}
        names = [(name, each) for each in definitions() for name in (each.option, *each.aliases)]
        self._settings = {_plain(name): each for name, each in names if name.startswith("--") and each.name != "config"}

    def values(self, name: str, given: Any) -> Values:  # noqa: ANN401
        """The settings of one table; a text stands for the model alone."""
        table = f"[models.{_key(name)}] " if name else ""
        values, sampling = dict[str, Any](), self.sampling.setdefault(name, {})
        for key, value in ({"model": given} if not isinstance(given, dict) else given).items():
            parameter = self._parameters.get(_plain(key))
            setting = parameter or self._setting(table, key, value)
            if setting.name in values or setting.name in sampling:
                raise self._error(table, key, value, f"{setting.name} is set twice: leave one of them out")
            try:
                if isinstance(setting, Definition):
                    values[setting.name] = self._placed(setting, setting.of_toml(value))
                else:
                    sampling[setting.name] = setting.value(str(value))
            except ValueError as error:
                raise SettingError(f"{self._path}: {table}{key}: {error}") from None
        return values

    def _setting(self, table: str, key: str, value: Any) -> Definition:  # noqa: ANN401
        setting = self._settings.get(_plain(key))
        if isinstance(value, dict) and not (setting and setting.takes_tables):
            written = f"{table[:-2]}.{key}]" if table else f"[{key}]"
            name = _key(written.partition(".")[2][:-1]) if table else "NAME"
            raise SettingError(
                f"{self._path}: there is no table {written}: "
                f"a model is a table [models.{name}], a name with dots in quotes"
            )
        if setting is None:
            known = [name.replace("_", "-") for name in (*self._settings, *self._parameters)]
            hint = meant(key.replace("_", "-"), known) or ": leftoff serve --help lists all"
            raise self._error(table, key, value, f"there is no such setting{hint}")
        if table and setting.is_shared:
            raise self._error(table, key, value, "all models share it: write it above the first table of a model")
        return setting

    def _error(self, table: str, key: str, value: Any, problem: str) -> SettingError:  # noqa: ANN401
        return SettingError(f"{self._path}: {table}{key} = {value!r}: {problem}")

    def _placed(self, setting: Definition, value: Any) -> Any:  # noqa: ANN401
        """The value of a setting, of which paths are taken from the folder of the file.

        A model that is no file there is left as it is: it may be one of the hub.
        """
        if isinstance(value, tuple):
            return tuple(self._placed(setting, each) for each in value)
        if setting.check is scaled_file_problem:
            return with_path(value, self._path_of)
        if not value or setting.metavar not in ("FILE", "DIR", "MODEL"):
            return value
        return self._path_of(value, is_sure=setting.metavar == "DIR")

    def _path_of(self, given: str, *, is_sure: bool = False) -> str:
        path = self._path.parent / Path(given).expanduser()
        return str(path) if is_sure or path.exists() else given


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _key(name: str) -> str:
    """A name as TOML writes it."""
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'
