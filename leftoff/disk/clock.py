"""What time it is, for what is written to disk: by the wall clock of the start, and from then on without its jumps.

A clock that is set, by years or by its daemon's seconds, changes nothing in the order of what was used. The time a
machine sleeps counts where the system tells it.
"""

import time

_BEGUN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else None
_BEGUN_MONOTONIC = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970."""
    if _BEGUN is None:
        return _BEGUN_MONOTONIC + time.monotonic()
    return _BEGUN + time.clock_gettime(time.CLOCK_BOOTTIME)
