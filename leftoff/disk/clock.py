"""The time for what is written to disk: the wall clock at start, advanced by a clock that is never set.

When the wall clock is set, by years or by NTP's seconds, the order of last uses does not change. Time in which the
machine sleeps counts where the system reports it.
"""

import time

_BEGUN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else None
_BEGUN_MONOTONIC = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970."""
    if _BEGUN is None:
        return _BEGUN_MONOTONIC + time.monotonic()
    return _BEGUN + time.clock_gettime(time.CLOCK_BOOTTIME)
