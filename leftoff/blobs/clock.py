"""The time for what is written to disk: the wall clock at start, advanced by a clock that is never set.

When the wall clock is set, by years or by NTP's seconds, the order of last uses does not change. Time in which the
machine sleeps counts where the system reports it.
"""

import time
from functools import partial

_steady = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
_BEGUN = time.time() - _steady()


def now() -> float:
    """Seconds since 1970."""
    return _BEGUN + _steady()
