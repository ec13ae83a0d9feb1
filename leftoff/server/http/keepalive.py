"""A sign of life for streams that wait for a long prompt: clients give up what stays silent."""

import time
from dataclasses import dataclass, field


@dataclass
class Pulse:
    seconds: float = 5.0
    _last: float = field(default_factory=time.monotonic)

    def is_due(self) -> bool:
        """Once for every so many seconds."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True
