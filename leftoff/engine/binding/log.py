"""llama.cpp's own log lines, as records of the Python logger `leftoff.llama`."""

import ctypes as C
import logging
import threading

from leftoff.engine.binding import abi

logger = logging.getLogger("leftoff.llama")

# ggml_log_level; 5 continues the line before it. llama.cpp's "info" is detail that few people want to read.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUES = 5
_KEPT_ERRORS = 8


class LogCapture:
    """Receives pieces of lines from any thread and logs whole lines. Remembers the last errors, to explain failures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial = ""
        self._level = logging.DEBUG
        self._errors: list[str] = []
        self.callback = abi.LogCallback(self._receive)  # llama.cpp keeps a pointer to it: must live as long

    def attach(self, dll: C.CDLL) -> None:
        dll.llama_log_set(self.callback, None)

    def take_errors(self) -> str:
        """The errors since the last call, as one line."""
        with self._lock:
            errors, self._errors = self._errors, []
        return "; ".join(errors)

    def _receive(self, level: int, text: bytes | None, _data: object) -> None:
        with self._lock:
            if level != _CONTINUES:
                self._level = _LEVELS.get(level, logging.DEBUG)
            *lines, self._partial = (self._partial + (text or b"").decode("utf-8", "replace")).split("\n")
            for line in filter(None, map(str.strip, lines)):
                if self._level >= logging.ERROR:
                    self._errors = [*self._errors[1 - _KEPT_ERRORS :], line]
                logger.log(self._level, "%s", line)
