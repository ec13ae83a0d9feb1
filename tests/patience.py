"""How tests wait: for a condition, never for a time.

Only a hang takes `PATIENCE_S`. How fast things are is no matter of the tests: the machine may be busy with other work.
"""

import time
from collections.abc import Callable

PATIENCE_S = 300.0
POLL_S = 0.005  # how often who waits looks


def until(condition: Callable[[], object]) -> bool:
    """Wait for what another thread or process does; False if it did not do it in all that time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
