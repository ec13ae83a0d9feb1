"""Full passes of Python's garbage collector: made while nothing runs, rather than in the middle of a reply.

A full pass looks at every object of the process, those of all libraries and of all saved pages, and holds up all
threads: 20 to 50 ms after the start, and more with a large cache. Young objects are still looked at all the time.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MIN_YOUNG_PASSES = 100  # some 70,000 objects are new since the last full one
_MAX_MIDDLE_PASSES = 100  # without a full one, on a server that is never idle
_POLL_S = 1.0


@contextmanager
def full_passes_when_idle(is_idle: Callable[[], bool], poll_s: float = _POLL_S) -> Iterator[None]:
    """For a process that is all the server's. Only these passes look at what was there before the last of them."""
    before, ended = gc.get_threshold(), threading.Event()

    def watch() -> None:
        was_idle, looked = False, _num_young_passes()
        while not ended.wait(poll_s):
            was_idle, was_idle_before = is_idle(), was_idle
            if was_idle and was_idle_before and _num_young_passes() - looked >= _MIN_YOUNG_PASSES:
                _look_at_all()
                looked = _num_young_passes()

    gc.set_threshold(*before[:2], _MAX_MIDDLE_PASSES)
    _look_at_all()
    thread = threading.Thread(target=watch, name="leftoff-garbage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.set_threshold(*before)
        gc.unfreeze()


def _num_young_passes() -> int:
    return int(gc.get_stats()[0]["collections"])


def _look_at_all() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()
