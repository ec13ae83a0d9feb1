"""One clock for many simulated processes. Each has an event loop whose time jumps to the next timer, and threads that
take turns: they are greenlets, and give way where they wait or take a lock.

All that runs comes from one heap of events, so that a seed decides everything. A process that was killed runs no more.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from leftoff.blobs.threads import LoopThread, Threads

Result = TypeVar("Result")
_EventLoop: Any = asyncio.AbstractEventLoop  # most of whose methods nobody calls
_PREEMPTED = 0.1  # how often a thread gives way where it takes a lock
_MAX_EVENTS = 200_000
_LATE_S = 0.002  # by how much a thread that is woken may come late


class World:
    """The clock, the events by time, and the trace of a run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.trace: list[str] = []
        self.findings: list[str] = []
        self.current: Process | None = None
        self.unwell_at = float("-inf")  # when a part was last seen broken
        self._events: list[tuple[float, int, Process, Callable[[], object]]] = []
        self._order = count()

    def at(self, when: float, process: "Process", call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), process, call))

    def run(self, is_over: Callable[[], bool]) -> None:
        while self._events and not is_over():
            self.now, number, process, call = heapq.heappop(self._events)
            if number > _MAX_EVENTS:
                self.find(f"no end after {_MAX_EVENTS} events")
                return
            if process.is_alive:
                self.current = process
                call()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:.4f} {text}")

    def find(self, text: str) -> None:
        """Something that must not be."""
        self.note(f"FOUND {text}")
        self.findings.append(text)


class Process:
    """A process of the fleet. Its wall clock may be wrong by `skew_s`."""

    def __init__(self, world: World, name: str, skew_s: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.skew_s = skew_s
        self.is_alive = True
        self.hub = getcurrent()
        self.loop: asyncio.AbstractEventLoop = VirtualLoop(self)
        self.threads = SimThreads(self)

    def kill(self) -> None:
        self.is_alive = False

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """A task on its loop."""
        return asyncio.Task(work, loop=self.loop)


class VirtualLoop(_EventLoop):  # type: ignore[misc]
    """The event loop of a process: its handles are events of the world."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_closed = False

    def time(self) -> float:
        return self._process.world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def stop(self) -> None:
        self._is_closed = True

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # noqa: ANN401
        return self._put(self.time(), asyncio.Handle(callback, args, self, context))

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._put(when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def _put(self, when: float, handle: asyncio.Handle) -> asyncio.Handle:
        self._process.world.at(when, self._process, partial(self._run, handle))
        return handle

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            asyncio._set_running_loop(self)
            try:
                handle._run()
            finally:
                asyncio._set_running_loop(None)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":  # noqa: ANN401
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":  # noqa: ANN401, ARG002
        return asyncio.wrap_future(self._process.threads.submit(partial(func, *args)), loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.is_alive:
            self._process.world.find(f"{self._process.name}: {context['message']}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None: ...


# --- threads


class SimThread(greenlet):  # type: ignore[misc]
    """A thread of a process. It begins when the world comes to it."""

    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        super().__init__(self._work, parent=process.hub)
        self._call = work
        self._ended = Future[None]()
        self.process = process
        self.num_held = 0  # locks
        process.world.at(process.world.now + process.world.random.uniform(0, _LATE_S), process, self.switch)

    def _work(self) -> None:
        self._call()
        self._ended.set_result(None)

    def join(self, timeout: float | None = None) -> None:
        wait_for_future(self.process, self._ended, timeout)

    def is_alive(self) -> bool:
        return not self._ended.done()


class Parking:
    """Where threads wait to be woken."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._parked: dict[greenlet, int] = {}
        self._tickets = count()

    def wait(self, timeout_s: float | None = None) -> None:
        me, world, ticket = getcurrent(), self._process.world, next(self._tickets)
        if me is self._process.hub:
            raise RuntimeError(f"the event loop of {self._process.name} waits for a thread")
        self._parked[me] = ticket
        if timeout_s is not None:
            world.at(world.now + timeout_s, self._process, partial(self._resume, me, ticket))
        self._process.hub.switch()

    def wake(self) -> None:
        world = self._process.world
        for thread, ticket in self._parked.items():
            world.at(world.now + world.random.uniform(0, _LATE_S), self._process, partial(self._resume, thread, ticket))

    def _resume(self, thread: greenlet, ticket: int) -> None:
        if self._parked.get(thread) == ticket:
            del self._parked[thread]
            thread.switch()


class SimLock:
    """A lock in simulated time. It is not reentrant, and an event loop may take it only if it is free."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_held = False
        self._parking = Parking(process)

    def __enter__(self) -> None:
        if not self._process.is_alive:
            return  # a thread of a killed process that is cleared away
        me = getcurrent()
        if isinstance(me, SimThread):
            if not me.num_held and self._process.world.random.random() < _PREEMPTED:
                sleep(self._process, self._process.world.random.uniform(0, _LATE_S))
            me.num_held += 1
        while self._is_held:
            self._parking.wait()
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        me = getcurrent()
        if isinstance(me, SimThread):
            me.num_held -= 1
        if self._process.is_alive:
            self._parking.wake()


class SimCondition(SimLock):
    """What the code uses of `threading.Condition`."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._waiting = Parking(process)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:  # noqa: ANN401
        world = self._process.world
        deadline = None if timeout is None else world.now + timeout
        while not (result := predicate()) and (deadline is None or world.now < deadline):
            self.__exit__()
            self._waiting.wait(None if deadline is None else deadline - world.now)
            self.__enter__()
        return result

    def notify_all(self) -> None:
        if self._process.is_alive:
            self._waiting.wake()

    notify = notify_all


class SimFuture(Future[Result]):
    """A future whose result a simulated thread can wait for."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def result(self, timeout: float | None = None) -> Result:
        wait_for_future(self._process, self, timeout)
        return super().result(0)


def wait_for_future(process: Process, future: "Future[Any]", timeout_s: float | None) -> None:
    if not future.done():
        parking = Parking(process)
        future.add_done_callback(lambda _: parking.wake())
        parking.wait(timeout_s)


def sleep(process: Process, seconds: float) -> None:
    """Lets a thread sleep, in simulated time."""
    Parking(process).wait(seconds)


class SimThreads(Threads):
    """The threads of a simulated process; also its pools, which have as many threads as there is work."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def clock(self) -> float:
        return self._process.world.now

    def lock(self) -> Any:  # noqa: ANN401
        return SimLock(self._process)

    def condition(self) -> Any:  # noqa: ANN401
        return SimCondition(self._process)

    def start(self, work: Callable[[], None], name: str) -> Any:  # noqa: ANN401, ARG002
        return SimThread(self._process, work)

    def pool(self, num_threads: int, name: str) -> Any:  # noqa: ANN401, ARG002
        return self

    def loop(self, name: str) -> LoopThread:  # noqa: ARG002
        return cast(LoopThread, SimLoopThread(self._process))

    def submit(self, work: Callable[..., Result], *args: Any) -> "Future[Result]":  # noqa: ANN401
        answer: Future[Result] = SimFuture(self._process)

        def run() -> None:
            try:
                answer.set_result(work(*args))
            except Exception as error:
                answer.set_exception(error)

        SimThread(self._process, run)
        return answer

    def shutdown(self, **_: bool) -> None: ...


class SimLoopThread:
    """The event loop of a process, called from its threads."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.loop = process.loop

    def call(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        answer: Future[Result] = SimFuture(self._process)
        if self.loop.is_closed():
            work.close()
            answer.cancel()
        else:
            self.loop.call_soon(self._begin, work, answer)
        return answer

    def _begin(self, work: Coroutine[Any, Any, Any], answer: "Future[Any]") -> None:
        task = self.loop.create_task(work)
        asyncio.futures._chain_future(task, answer)  # type: ignore[attr-defined]

    def close(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        wait_for_future(self._process, self.call(self._end(ending)), 2.0)

    async def _end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        others = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
        tasks = sorted(others, key=lambda task: int(task.get_name().rpartition("-")[2]))  # as they began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await ending()
        self.loop.stop()
