"""The adapters of a model host: by the names under which requests choose them, and with the scales that act unasked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leftoff.adapters import Adapter, AdapterSet
from leftoff.config import Settings
from leftoff.engine.adapter_file import LoraFile, read_control_vectors, read_lora
from leftoff.engine.context import ContextSettings
from leftoff.engine.model import Model
from leftoff.errors import LeftoffError
from leftoff.setting import ScaledFile, SettingError, numbers, scaled_file

Scales = Sequence[tuple[int, float]]  # for some of the adapters by their numbers; the others are off

_LATEST = "latest"  # the tag that Ollama's clients add to any name


class AdapterError(LeftoffError):
    """A request for adapters that are not here, or do not go together."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class NamedAdapter:
    """An adapter of the settings. `scale` is the one under its name; unasked, those without a name in them act."""

    name: str
    scale: float
    file: LoraFile
    acts_unasked: bool


def adapter_names(settings: Settings) -> list[str]:
    """The names of the adapters of a model, whether or not it is open."""
    return [name_of(scaled_file(text)) for text in settings.lora]


def name_of(given: ScaledFile) -> str:
    """The name under which requests choose an adapter."""
    return given.name or Path(given.path).stem


def adapted(context: ContextSettings, settings: Settings, model: Model) -> ContextSettings:
    """The context, with the adapters of the settings. They are checked here: llama.cpp aborts on bad ones."""
    given = [scaled_file(text) for text in settings.lora]
    paths = [Path(each.path).expanduser() for each in given]
    num_layers = None if model.settings.mtp else model.num_layers
    loras = [read_lora(path, model.path, model.vocabulary.size, num_layers) for path in paths]
    control = None
    if settings.control_vector:
        files = [scaled_file(text) for text in settings.control_vector]
        first, last = numbers(settings.control_vector_layers or "0,0")
        scaled = [(Path(each.path).expanduser(), each.scale) for each in files]
        control = read_control_vectors(scaled, model.path, (int(first), int(last)))
    return replace(context, loras=tuple(loras), control=control)


def adapter_bytes(settings: Settings) -> int:
    """The bytes that the adapters take beside the model, as far as their files are here."""
    paths = [Path(scaled_file(text).path).expanduser() for text in settings.lora]
    return sum(path.stat().st_size for path in paths if path.is_file())


class HostAdapters:
    """Tells the set of adapters for a request. Any thread may ask."""

    def __init__(self, names: Iterable[str], settings: Settings, files: Sequence[LoraFile]) -> None:
        """`names` are those of the model itself."""
        given = [scaled_file(text) for text in settings.lora]
        is_left = settings.lora_init_without_apply
        self.all = [
            NamedAdapter(name_of(each), each.scale, file, acts_unasked=not each.name and not is_left)
            for each, file in zip(given, files, strict=True)
        ]
        self._names = frozenset(names)
        self._by_name = {each.name: each for each in self.all}
        shared = [each.name for each in self.all if each is not self._by_name[each.name] or each.name == _LATEST]
        if shared:
            problem = "that is a tag of models" if shared[0] == _LATEST else "two have it"
            raise SettingError(f"--lora: no adapter can have the name {shared[0]!r}, {problem}: give NAME=FILE")
        self.scales = [each.scale if each.acts_unasked else 0.0 for each in self.all]
        try:
            self._unasked = self._set("--lora", self.scales)
        except AdapterError as error:
            raise SettingError(f"--lora: {error}, so give it a name: NAME=FILE") from error

    def asked(self, model: str | None, scales: Scales | None = None) -> AdapterSet:
        """The set for a request with this model and these scales, which go before the adapter in its name."""
        named = self.named(model)
        if scales is not None:
            return self._set("lora", self._scales(scales))
        if named is not None:
            return self._set("model", [named.scale if each is named else 0.0 for each in self.all])
        return self._unasked

    def shown(self, model: str | None, scales: Scales | None) -> NamedAdapter | None:
        """The adapter in `MODEL:NAME`, for the name in replies: none if the scales of the request turn it off."""
        named = self.named(model)
        if named is None or scales is None:
            return named
        return named if self._scales(scales)[self.all.index(named)] else None

    def named(self, model: str | None) -> NamedAdapter | None:
        """The adapter in `MODEL:NAME`."""
        model = model or ""
        if not self.all or ":" not in model or model in self._names:
            return None
        base = max((each for each in self._names if model.startswith(f"{each}:")), key=len, default="")
        name = model.removeprefix(f"{base}:") if base else model.rpartition(":")[2]
        if base and name != _LATEST and name not in self._by_name:
            raise AdapterError("model", f"{base} has no adapter {name!r}: choose one of {', '.join(self._by_name)}")
        return self._by_name.get(name)

    def set_unasked(self, scales: Scales) -> None:
        """The scales from now on, for requests that do not say: 0 for adapters that are not named."""
        wanted = self._scales(scales)
        self._unasked, self.scales = self._set("scale", wanted), wanted

    def _scales(self, given: Scales) -> list[float]:
        scales = [0.0] * len(self.all)
        for number, scale in given:
            if not 0 <= number < len(self.all):
                raise AdapterError("lora", f"there is no adapter {number}: this model has {len(self.all)}, from 0 on")
            scales[number] = scale
        return scales

    def _set(self, field: str, scales: Sequence[float]) -> AdapterSet:
        """The adapters with these scales. A file under two names acts once, with the sum of their scales."""
        summed: dict[LoraFile, float] = {}
        for each, scale in zip(self.all, scales, strict=True):
            summed[each.file] = summed.get(each.file, 0.0) + scale
        made = AdapterSet.of(Adapter(file.fingerprint, scale, file.invocation) for file, scale in summed.items())
        if len(made.adapters) > 1 and any(adapter.invocation for adapter in made.adapters):
            names = [each.name for each in self.all if each.file.invocation]
            raise AdapterError(field, f"{names[0]} is an aLoRA, which acts alone")
        return made
