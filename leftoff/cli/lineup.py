"""The models of a server: `leftoff serve a.gguf big=b.gguf`, tables of leftoff.toml, the files of `--models-dir`."""

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from leftoff.cli.config_file import ConfigFile, Values
from leftoff.cli.loading import Leave, ends_at_once, load_host, open_fleet, with_files
from leftoff.config import AUTO, MIB, Settings
from leftoff.engine.devices import available_ram
from leftoff.engine.errors import ModelError, ReplacedError
from leftoff.engine.examine import examine
from leftoff.engine.fingerprint import Identity
from leftoff.engine.model import check_files, identities
from leftoff.host.budgets import Capacities
from leftoff.host.build import Fitted, fitted, open_host, open_text_encoder, sleep_after_s
from leftoff.host.encoder import EncoderHost, is_encoder
from leftoff.host.host import ModelHost
from leftoff.host.kept import cache_root
from leftoff.host.late_host import LateHost
from leftoff.host.request_log import RequestLog
from leftoff.host.seats import Seat, Seats
from leftoff.hub.reference import default_model, is_pattern, models_in, shown_name
from leftoff.scheduler.gate import Gate
from leftoff.server.admin.prewarm import prewarm_at_start
from leftoff.server.hosts import Hosts
from leftoff.setting import SettingError


class Lineup:
    """The settings of each model of a server. Its names are its aliases, first the one that lists show."""

    def __init__(self, given: Values, config: ConfigFile, texts: Sequence[str] = ()) -> None:
        """`texts` name models as MODEL, as NAME=MODEL, or as the file does. Without any, those of the file are meant.

        `given` are settings that override the file.
        """
        texts = _texts(given, texts)
        values = config.values | given
        folder = given.get("models_dir") if texts else values.get("models_dir")
        self.folder = Path(folder).expanduser() if folder else None
        self._given = {name: value for name, value in given.items() if name != "model"}
        self.config = config
        if not texts:
            texts = self._tables() or [values.get("model", "")] * (self.folder is None or "model" in values)
        every = [self._named(text) for text in texts]
        self.encoders = [settings for settings in every if _is_encoder(settings)]
        self.named = [settings for settings in every if settings not in self.encoders]
        if self.folder and not self.folder.is_dir():
            raise SettingError(f"--models-dir {folder}: there is no such folder")
        if given.get("alias") and not self.has_one:
            raise SettingError(f"--alias {given['alias'][0]}: of several models, name each as NAME=MODEL")
        _refuse_equal_names(every)
        files = self.files()
        if self.encoders and not self.named and not files:  # a server has a model that writes: the small one, then
            self.named = [self._settings("", {"model": str(default_model())})]
        if not self.named and not files:
            raise SettingError(f"--models-dir {folder}: there is no GGUF file in it: put one there, or name a model")
        self.first = self.named[0] if self.named else self.of_file(*next(iter(files.items())))

    @property
    def has_one(self) -> bool:
        return len(self.named) == 1 and self.folder is None and not self.encoders

    def is_first(self, settings: Settings) -> bool:
        return settings.alias[0] == self.first.alias[0]

    def sampling_of(self, settings: Settings) -> Values:
        """How the file wants the replies of a model to be sampled."""
        return self.config.sampling.get("", {}) | self.config.sampling.get(settings.alias[0], {})

    def files(self) -> dict[str, Path]:
        """The model files of --models-dir by name, without those that a named model hides by its name or its file."""
        if self.folder is None:
            return {}
        given = (*self.named, *self.encoders)
        names = {name for settings in given for name in settings.alias}
        files = {Path(settings.model).expanduser().resolve() for settings in given}
        folder = self.folder.resolve()
        found = models_in(folder).items()
        return {name: path for name, path in found if name not in names and path not in files}

    def of_file(self, name: str, path: Path) -> Settings:
        return self._settings(name, self.config.models.get(name, {}) | {"model": str(path)})

    def _tables(self) -> list[str]:
        """The models of the file. A table that has none is for a file in the folder."""
        return [name for name, values in self.config.models.items() if "model" in values or self.folder is None]

    def _named(self, text: str) -> Settings:
        tables = self.config.models
        if text in tables:
            _refuse_pattern(text)
            return self._settings(text, tables[text])
        name, equals, model = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            return self._settings("", {"model": text})
        _refuse_pattern(name)
        return self._settings(name, tables.get(name, {}) | {"model": model})

    def _settings(self, name: str, own: Values) -> Settings:
        if name and not own.get("model"):
            if name not in self.config.models:
                raise SettingError(f"{name}= has no model: write {name}=FILE.gguf, or a name of the hub")
            problem = f"{self.config.path}: [models.{name}] has no model"
            raise SettingError(f'{problem}: write model = "FILE.gguf", or a name of the hub')
        values = self.config.values | own | self._given
        names = [*filter(None, [name]), *values.get("alias", ())]
        shown = name or shown_name(names, own["model"])
        values["alias"] = (shown, *(other for other in names if other != shown))
        try:
            return Settings(**values | {"model": own["model"]})
        except SettingError as error:
            raise SettingError(f"{name}: {error}" if name else str(error)) from None


def _texts(given: Values, texts: Sequence[str]) -> Sequence[str]:
    model = given.get("model")
    if texts and model and model not in texts:
        raise SettingError(f"two models, {texts[0]} and --model {model}: name them as {texts[0]} OTHER")
    return texts or ([model] if model else [])


def _refuse_pattern(name: str) -> None:
    if is_pattern(name):
        raise SettingError(f'{name!r} is a pattern, and a model has a name: give the pattern as aliases = ["{name}"]')


def _refuse_equal_names(chosen: Sequence[Settings]) -> None:
    owners: dict[str, Settings] = {}
    for settings in chosen:
        for name in settings.alias:
            other = owners.setdefault(name, settings)
            if other is not settings and not is_pattern(name):
                raise SettingError(
                    f"two models are named {name}, {other.model} and {settings.model}: "
                    f"give one another name, as OTHER={settings.model}"
                )


@contextmanager
def opened(console: Console, lineup: Lineup, leave: Leave, sampled: Callable[[Values], Values]) -> Iterator[Hosts]:
    """The hosts of a server. The first is open, and those that are pinned.

    `sampled` gives how replies are sampled, if the file wants it so.
    """
    if lineup.has_one and lineup.first.sleep_idle_seconds < 0:  # one that never sleeps is never opened again
        with load_host(console, lineup.first, leave, sampled(lineup.sampling_of(lineup.first))) as host:
            yield Hosts(LateHost.of(host, partial(open_fleet, lineup.first)))
        return

    def open_one(fit: Fitted, log: RequestLog, gate: Gate) -> ModelHost:
        sampling = sampled(lineup.sampling_of(fit.settings))
        if lineup.is_first(fit.settings):
            return load_host(console, fit.settings, leave, sampling, log, fit, gate)
        return open_host(fit, fleet=open_fleet(fit.settings), sampling=sampling, log=log, gate=gate)

    with closing(_Openings(lineup, open_one)) as openings:
        with ends_at_once(console, leave):
            hosts = openings.hosts()
        yield hosts


def _is_encoder(settings: Settings) -> bool:
    """Whether a model is an encoder, which only a file that is here can tell."""
    path = Path(settings.model).expanduser()
    return path.is_file() and is_encoder(path)


class _Openings:
    """Opens the models of a server in their turns, and closes them."""

    def __init__(self, lineup: Lineup, open_one: Callable[[Fitted, RequestLog, Gate], ModelHost]) -> None:
        self.lineup = lineup
        self._encoders: list[EncoderHost] = []
        self.open_one = open_one
        self.seats = Seats(most=lineup.first.models_max or math.inf)
        self.capacities = Capacities(available_ram() // 2 if lineup.first.ram == AUTO else lineup.first.ram * MIB)
        writes_one = len(lineup.named) == 1 and lineup.folder is None
        self.log = RequestLog(lineup.first.reports, names_models=not writes_one)
        self._lock = threading.Lock()
        self._late: dict[tuple[str, str], LateHost] = {}  # by name and file

    def hosts(self) -> Hosts:
        """Pinned models are opened before the first: there must be room for it beside them."""
        for settings in self.lineup.encoders:  # at once: they are small, and the others have the room that they leave
            self._encoders.append(open_text_encoder(settings))
        named = [self._late_host(settings) for settings in self.lineup.named]
        first, *_ = every = [*named, *self._in_folder()]
        for late in sorted(every, key=lambda late: not late.settings.pinned):
            if late.settings.pinned or late is first:
                late.open()
        find = None if self.lineup.folder is None else self._in_folder
        return Hosts(first, named[1:], find, self._encoders)

    def close(self) -> None:
        with self._lock:
            for late in self._late.values():
                late.close()
            for encoder in self._encoders:
                encoder.close()

    def _in_folder(self) -> list[LateHost]:
        """The hosts of the model files that are in --models-dir now."""
        with self._lock:
            return [
                self._late.get((name, str(path))) or self._late_host(self.lineup.of_file(name, path))
                for name, path in self.lineup.files().items()
            ]

    def _late_host(self, settings: Settings) -> LateHost:
        seat = self.seats.add(sleep_after_s=sleep_after_s(settings), pinned=settings.pinned)
        opening = _Opening(self, settings, seat)
        disk = self.capacities.disk(cache_root(settings)) if settings.disk else None
        late = LateHost(
            settings.alias[0],
            seat,
            opening.make,
            prepare=opening.prepare,
            settings=settings,
            disk=disk,
            fleet=partial(open_fleet, settings),
        )
        self._late[late.name, settings.model] = late
        return late


class _Opening:
    """How one model is opened: its file is found and what it needs reckoned, and in its turn it is loaded."""

    def __init__(self, openings: _Openings, settings: Settings, seat: Seat) -> None:
        self._openings = openings
        self._settings = settings
        self._seat = seat
        self._fit = Fitted(settings)
        self._files: list[Identity] = []  # that were examined

    def prepare(self) -> None:
        seats = self._openings.seats
        with_file = with_files(self._settings)
        path = Path(with_file.model)
        check_files(path)  # before another model makes way for it
        if is_encoder(path):
            name = self._settings.alias[0]
            raise ModelError(f"{path} is an encoder, and writes no text: name it at start, as {name}={path}")
        self._files = identities(path)
        if not self._openings.lineup.is_first(self._settings):  # others are being served by then
            examine(path)
        self._fit = dataclasses.replace(fitted(with_file, seats.room), shared=self._openings.capacities)
        seats.room = {**self._fit.room, **seats.room}
        self._seat.needs = self._fit.needs

    def make(self, gate: Gate) -> ModelHost:
        path = Path(self._fit.settings.model)
        if identities(path) != self._files:  # llama.cpp may end the process on it, and it may need more room
            raise ReplacedError(f"{path} was replaced while it waited for room: ask again")
        host = self._openings.open_one(self._fit, self._openings.log, gate)
        if self._openings.lineup.is_first(self._settings):  # who loads it tells what was prewarmed
            return host
        self._seat.notify = host.scheduler.wake
        try:
            prewarm_at_start(host)
        except BaseException:
            host.close()
            raise
        return host
