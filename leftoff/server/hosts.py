"""The models that answer behind one address."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeVar

from leftoff.host.encoder import EncoderHost
from leftoff.host.fleet import ModelState, Place
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.request_log import RequestLog
from leftoff.server.http.errors import ApiError, no_model
from leftoff.server.http.known_files import KnownFiles

_MAX_LISTED = 40  # names in an error
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_FRESH_S = 1.0  # a folder is not looked through for every request that a pattern matches


def untagged(model: str) -> str:
    """The name of a model without the tag that Ollama's clients add to it."""
    return model.removesuffix(":latest")


class Named(Protocol):
    """A model of a server, or as a router knows it."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]: ...


Model = TypeVar("Model", bound=Named)


def is_named(one: Named, model: str) -> bool:
    """Whether this is one of its exact names."""
    return untagged(model) in map(untagged, (one.name, *one.aliases))


def matches(one: Named, model: str) -> bool:
    """Whether one of its patterns is meant."""
    return any(fnmatchcase(name, alias) for alias in one.aliases for name in (model, untagged(model)))


def meant(model: str, models: Iterable[Model]) -> Model | None:
    """The one that a request means: an exact name goes before a pattern, and the first model before later ones."""
    every = [*models]
    return next((each for fits in (is_named, matches) for each in every if fits(each, model)), None)


def listed_names(names: Sequence[str]) -> str:
    """Names for an error: of very many only the first."""
    more = [f"and {len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else []
    return ", ".join([*names[:_MAX_LISTED], *more])


def written_at(file: Path | None) -> datetime:
    """When the file of a model was written, for lists; long ago if it is not here, or not any more."""
    with suppress(OSError):
        if file is not None:
            return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return _LONG_AGO


class Hosts:
    """The hosts of a server. One that is alone and has no aliases answers whatever model a request names."""

    def __init__(
        self,
        first: ModelHost | LateHost,
        others: Sequence[LateHost] = (),
        find: Callable[[], Sequence[LateHost]] | None = None,
        encoders: Sequence[EncoderHost] = (),
    ) -> None:
        """The first is open, and answers requests that name no model. Others are opened when they are asked.

        `find` tells those that come and go, such as the files of a folder. The first may be one of them.
        """
        self.encoders = encoders
        self.known_files = KnownFiles()
        self._first = first if isinstance(first, LateHost) else LateHost.of(first)
        self._find = find
        self._place: Place | None = None
        self._found = [*find()] if find else []
        self._found_at = time.monotonic()
        self._named = [*([] if self._first in self._found else [self._first]), *others]
        self._seen = dict.fromkeys([*self._named, *self._found])

    async def of(self, model: str | None = None) -> ModelHost:
        """The host of the model that a request names. It is asked for anew by each request: models come and go."""
        late = self.named(model)
        host = late.ready
        return host if host is not None else await asyncio.wrap_future(late.ask())

    async def embedding(self, model: str | None, *, ranks: bool = False) -> ModelHost | EncoderHost:
        """The host that gives vectors, or scores. Where any name would do, an encoder goes before the first model."""
        encoder = self.encoder(model or "")
        if encoder is None and (not model or (self._answers_any and not is_named(self._first, model))):
            encoder = next((each for each in self.encoders if each.shape.ranks is ranks), None)
        return encoder or await self.of(model)

    def encoder(self, model: str) -> EncoderHost | None:
        """The encoder of this name."""
        return next((encoder for encoder in self.encoders if untagged(model) in encoder.settings.alias), None)

    def opened(self, model: str | None = None) -> list[ModelHost]:
        """All hosts that are open, or the one that a request names, which is not opened for that."""
        if not model:
            return [*self] or [self.first]
        host = self.named(model).opened
        if host is None:
            raise ApiError(
                400,
                f"{model} is not loaded, so there is nothing to show: ask it something, or POST /models/load",
                param="model",
                code="model_not_loaded",
            )
        return [host]

    def named(self, model: str | None) -> LateHost:
        """The model that a request names, whether or not it is open."""
        if not model or (self._answers_any and self.encoder(model) is None):
            return self._first
        known = (late for late in (*self._named, *self._found) if is_named(late, model))
        asked = next(known, None) or meant(model, self.listed(_FRESH_S)) or meant(model, self.listed())
        if asked is None and self.encoder(model) is not None:
            raise ApiError(400, f"{model} is an encoder, and writes no text: ask it at /v1/embeddings or /v1/rerank")
        if asked is None:
            raise self._unknown(model)
        return asked

    def listed(self, fresh_s: float = 0.0) -> list[LateHost]:
        """All models, open or not. Those that come and go are looked for if the last look is older than `fresh_s`."""
        now = time.monotonic()
        if self._find is not None and now - self._found_at >= fresh_s:
            self._found, self._found_at = [*self._find()], now
            self._seen = self._seen | dict.fromkeys(self._found)  # another one: others may go through it just now
        for late in self._seen:
            late.on_open = self._announce
        return [*self._named, *self._found]

    @property
    def _answers_any(self) -> bool:
        return self.has_one and not self._first.own_aliases

    @property
    def states(self) -> list[ModelState]:
        """All models, the first in front, and then the encoders. Any thread may ask."""
        every = [late.state for late in sorted(self.listed(), key=lambda late: late is not self._first)]
        return every + [ModelState(each.name, each.settings.alias[1:], writes=False) for each in self.encoders]

    def announce(self, url: str) -> None:
        """Tells the fleet, if there is one, where each host answers: of those that are opened later, once they are."""
        self._place = Place(secrets.token_hex(8), self.first.settings.advertise or url, lambda: self.states)
        self.listed()
        for host in self:
            self._announce(host)

    def _announce(self, host: ModelHost) -> None:
        if self._place is not None:
            host.announce(self._place)

    @property
    def has_one(self) -> bool:
        return len(self._seen) == 1 and self._find is None

    @property
    def first(self) -> ModelHost:
        """The host that answers where a request names no model."""
        assert self._first.host is not None
        return self._first.host

    def require_alive(self) -> None:
        """Raises `HostClosedError` if no model is open: the server stops, or the file of its only one was replaced."""
        if not any(host.is_alive for host in self):
            self.first.require_alive()

    def __iter__(self) -> Iterator[ModelHost]:
        """The hosts that are open, also if their file is gone."""
        return (host for late in self._seen if (host := late.opened) is not None)

    @property
    def log(self) -> RequestLog:
        """The log of the requests to all hosts."""
        return self.first.log

    @property
    def secret(self) -> bytes:
        """The secret that the names of tenants are hashed with."""
        return self.first.secret

    def _unknown(self, model: str) -> ApiError:
        names = [name for late in (*self._named, *self._found) for name in (late.name, *late.aliases)]
        names += [name for encoder in self.encoders for name in encoder.settings.alias]
        return no_model(f"there is no model {model!r} here: choose one of {listed_names(names)}")
