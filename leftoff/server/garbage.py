"""Full passes of Python's garbage collector: made while nothing runs, rather than in the middle of a reply.

A full pass looks at every object of the process, those of all libraries and of all saved pages, and holds up all
threads: 20 to 50 ms after the start, and more with a large cache. Young objects are still looked at all the time.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MAX_YOUNG_PASSES = 1000  # without a full one, on a server that is never idle
_POLL_S = 1.0


@contextmanager
def full_passes_when_idle(is_idle: Callable[[], bool], poll_s: float = _POLL_S) -> Iterator[None]:
    """For a process that is all the server's. What is there already is never looked at again."""
    before, ended = gc.get_threshold(), threading.Event()

    def watch() -> None:
        was_idle = False
        while not ended.wait(poll_s):
            was_idle, before_that = is_idle(), was_idle
            if was_idle and before_that and gc.get_count()[2] >= before[2]:
                gc.collect()

    gc.collect()
    gc.freeze()
    gc.set_threshold(*before[:2], _MAX_YOUNG_PASSES)
    thread = threading.Thread(target=watch, name="leftoff-garbage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.set_threshold(*before)
        gc.unfreeze()
