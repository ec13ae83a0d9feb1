"""A model host that is opened when it is asked, in its turn among the models of this machine.

It is opened again, anew, if another model lies in its file when it is to wake: what the old one has read is not for it.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from msgspec.structs import replace

from leftoff.config import Settings
from leftoff.disk.folder import model_folder
from leftoff.disk.tools.models import Pruned
from leftoff.engine.errors import CancelledError
from leftoff.host.adapters import adapter_names
from leftoff.host.budgets import Disk
from leftoff.host.fleet import Fleet, ModelState
from leftoff.host.host import LOADING, HostClosedError, ModelHost
from leftoff.host.kept import cache_root
from leftoff.host.seats import Seat, Seats
from leftoff.scheduler.gate import Gate

_ASK_S = 1.0  # whether there is room by now


class LateHost:
    """Any thread may call it. A thread of its own waits for room and loads, while somebody wants the host."""

    def __init__(
        self,
        name: str,
        seat: Seat,
        make: Callable[[Gate], ModelHost] | None,
        *,
        prepare: Callable[[], None] = lambda: None,
        settings: Settings | None = None,
        disk: Disk | None = None,
        fleet: Callable[[], Fleet | None] = lambda: None,
    ) -> None:
        """`prepare` is called before it waits for its turn, and tells the seat what the model needs.

        `fleet` makes one that is not joined.
        """
        self.name = seat.name = name
        self.settings = settings or Settings(alias=(name,))
        self.host: ModelHost | None = None  # the last; closed, if another one is to come in its place
        self.on_open: Callable[[ModelHost], None] = lambda _: None
        self.seat = seat
        seat.path = Path(self.settings.model).expanduser() if self.settings.model else None
        self._make = make
        self._prepare = prepare
        self._disk = disk
        self._fleet = fleet
        self._asked: list[Future[ModelHost]] = []
        self._lock = threading.Lock()
        self._changing = threading.Lock()  # held while a host is made or closed, or what none has open is deleted
        self._has_news = threading.Event()
        self._opening: threading.Thread | None = None
        self._replaced: ModelHost | None = None  # another one comes, or has come, in its place
        self._is_closed = False

    @classmethod
    def of(cls, host: ModelHost, fleet: Callable[[], Fleet | None] = lambda: None) -> "LateHost":
        """A late host of one that is open. It is not opened again."""
        late = cls(host.name, Seats().add(), None, settings=host.settings, fleet=fleet)
        late.host = host
        return late

    @property
    def aliases(self) -> list[str]:
        """The names beside the one that lists show, patterns among them, and those of its adapters."""
        return [*self.own_aliases, *self.adapted]

    @property
    def own_aliases(self) -> list[str]:
        return [name for name in self.settings.alias if name != self.name]

    @property
    def adapted(self) -> list[str]:
        """The models that it is with one of its adapters."""
        return [f"{self.name}:{name}" for name in adapter_names(self.settings)]

    @property
    def opened(self) -> ModelHost | None:
        """The host, if it is open."""
        host = self.host
        return host if self._make is None or (host is not None and host.is_alive) else None

    @property
    def ready(self) -> ModelHost | None:
        """The host, if it may be asked as it is. If the model sleeps, its file is the one that was loaded."""
        host = self.opened
        if host is None or self._make is None:
            return host
        is_idle = host.engine.is_asleep and not host.scheduler.num_waiting
        is_another = host is self._replaced or host.model.is_spoiled or (is_idle and not host.model.has_same_files)
        return None if is_another else host

    def is_replaced(self, host: ModelHost | None) -> bool:
        """Whether what a host could not answer, as it was closed, is to be asked again: of the one in its place."""
        return host is not None and host is self._replaced and not self._is_closed

    def open(self) -> ModelHost:
        """Waits for room, and loads the model."""
        return self.ask().result()

    def ask(self) -> "Future[ModelHost]":
        """The host, once it is open. It is not opened any more when all who have asked have cancelled."""
        asked: Future[ModelHost] = Future()
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            self._asked.append(asked)
            if self._opening is None:
                self._opening = threading.Thread(target=self._open, name=f"leftoff-open-{self.name}", daemon=True)
                self._opening.start()
        asked.add_done_callback(lambda _: self._has_news.set())
        return asked

    @property
    def status(self) -> str:
        if self.host is not None and self.host.is_alive:
            return self.host.status
        return LOADING if self._opening is not None else "unloaded"

    @property
    def state(self) -> ModelState:
        host = self.opened
        gate = host.scheduler.gate if host is not None else self.seat
        return ModelState(self.name, tuple(self.aliases), replace(gate.readiness(), is_open=host is not None))

    def forget(self, is_meant: Callable[[str], bool]) -> list[Pruned]:
        """Deletes what the model has on disk and in the store, for the namespaces that are meant, under all settings.

        But what its host has open on disk is its host's to delete. Blocks, also while that is opened, and raises. Only
        a file tells what is its own: of a name of the hub, that is known once it is open.
        """
        path = self.seat.path
        if path is None:
            return []
        with self._changing:
            disk = self._disk or self._disk_beside()
            pruned = disk.forget(path, is_meant) if disk is not None else []
            fleet = self._fleet()
            return pruned + (fleet.forget(path, is_meant) if fleet is not None else [])

    def _disk_beside(self) -> Disk | None:
        """The disk of a host that is alone, with its own folder as open."""
        if not self.settings.disk or self.host is None:
            return None
        disk = Disk(root := cache_root(self.settings))
        if self.host.cache.disk is not None:
            disk.opening(model_folder(root, self.host.engine.memory.fingerprint))
        return disk

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            opening = self._opening
        self._has_news.set()
        if opening is not None:
            opening.join()
        if self.host is not None:
            self.host.close()

    def _closed_error(self) -> HostClosedError:
        return HostClosedError(f"{self.name} is not opened any more: the server stops")

    # --- on the thread that opens

    def _open(self) -> None:
        while self._goes_on():
            try:
                self._answer(self._open_host())
            except CancelledError:  # nobody waits any more
                self._leave_seat()
            except BaseException as error:
                self._leave_seat()
                self._answer(error)

    def _leave_seat(self) -> None:
        """A host that lives has the seat itself: it may be awake by now, for those who asked before."""
        if self.opened is None:
            self.seat.slept()

    def _goes_on(self) -> bool:
        """Whether somebody waits for the host. Else the thread ends, and the next who asks starts another."""
        with self._lock:
            if any(not asked.cancelled() for asked in self._asked):
                return True
            self._asked.clear()
            self._opening = None
            return False

    def _is_wanted(self) -> bool:
        with self._lock:
            return not self._is_closed and any(not asked.cancelled() for asked in self._asked)

    def _answer(self, outcome: ModelHost | BaseException) -> None:
        with self._lock:
            answered, self._asked = self._asked, []
        for asked in answered:
            if not asked.set_running_or_notify_cancel():
                continue
            if isinstance(outcome, ModelHost):
                asked.set_result(outcome)
            else:
                asked.set_exception(outcome)

    def _open_host(self) -> ModelHost:
        """The host that is open, unless another model lies in its file; else a new one, in its turn."""
        if (old := self.opened) is not None:
            if not (old.model.is_spoiled or old.model.is_replaced):
                return old
            self._wait_until(lambda: not (old.scheduler.num_waiting or old.scheduler.runs))
            self._replaced = old
            with self._changing:
                old.close()
            self._leave_seat()  # if it was awake: nobody else would let the others have it
        self.seat.notify, self.seat.is_wanted = self._has_news.set, self._is_wanted
        self._prepare()
        self._wait_until(self.seat.admits)
        with self._changing:
            self.host = self._made()
        return self.host

    def _made(self) -> ModelHost:
        began = time.perf_counter()
        assert self._make is not None
        host = self._make(self.seat)
        self.seat.notify, self.seat.path = host.scheduler.wake, host.model.path
        self.seat.woke(time.perf_counter() - began)
        self.on_open(host)
        return host

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._has_news.wait(_ASK_S)
            self._has_news.clear()
            if self._is_closed:
                raise self._closed_error()
            if not self._is_wanted():
                raise CancelledError(f"nobody waits for {self.name} any more")
