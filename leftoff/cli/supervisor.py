"""Restarts a server that crashed; its conversations go on from the disk cache.

llama.cpp aborts the whole process on errors that it does not expect, and Python cannot prevent that. The supervisor is
another process, which loads no model. It holds the listening socket: while the server restarts, clients wait in its
backlog instead of being refused.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from rich.console import Console

SOCKET_VARIABLE = "LEFTOFF_SOCKET"  # the number of the listening socket that the server inherits

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_MAX_CRASHES, _WITHIN_S = 5, 60.0
_STEP_S = 0.05


class Supervisor:
    """Runs `leftoff` in a child process, with the arguments of this one."""

    def __init__(
        self,
        console: Console,
        listener: socket.socket,
        arguments: Sequence[str],
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        """`first_pause_s` is waited after the first crash, and twice as long after each further one."""
        self._first_pause_s = first_pause_s
        self._console = console
        self._listener = listener
        self._command = [sys.executable, "-m", "leftoff", *arguments, "--no-supervise"]
        self._crashes: list[float] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._exit_code = 0  # used if it is stopped while no server runs

    def run(self) -> int:
        """Returns the exit code of the server once it ends without a crash, or crashed too often."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        while True:
            code = self._serve_once()
            if code >= 0 or self._is_stopping:
                return max(code, 0)
            self._crashes = [*self._crashes[1 - _MAX_CRASHES :], time.monotonic()]
            name = signal.Signals(-code).name
            if len(self._crashes) == _MAX_CRASHES and self._crashes[-1] - self._crashes[0] < _WITHIN_S:
                self._say(f"the server crashed ({name}), the {_MAX_CRASHES}th time within a minute: giving up")
                return 128 - code
            pause = min(_LONGEST_PAUSE_S, self._first_pause_s * 2 ** (len(self._crashes) - 1))
            self._say(f"the server crashed ({name}): starting it again; what it had saved is on disk")
            if not self._rest(pause):
                return self._exit_code

    def _rest(self, seconds: float) -> bool:
        """Sleeps in steps, since a signal does not end Python's sleep. Returns False if it was stopped meanwhile."""
        end = time.monotonic() + seconds
        while not self._is_stopping and time.monotonic() < end:
            time.sleep(_STEP_S)
        return not self._is_stopping

    def _serve_once(self) -> int:
        number = self._listener.fileno()
        environment = os.environ | {SOCKET_VARIABLE: str(number)}
        self._server = subprocess.Popen(self._command, env=environment, pass_fds=[number])
        if self._is_stopping:  # the signal came while it was started
            self._server.terminate()
        return self._server.wait()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Sends a signal to the server; a second one kills it."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL if self._is_stopping else number)
        self._is_stopping = True
        self._exit_code = 128 + number if number == signal.SIGINT else 0

    def _say(self, text: str) -> None:
        self._console.print(text, style="bold red", soft_wrap=True)


def inherited_socket() -> socket.socket | None:
    """The listening socket of the supervisor that has started this server, if one has."""
    number = os.environ.pop(SOCKET_VARIABLE, None)
    return socket.socket(fileno=int(number)) if number else None
