"""`leftoff` as a process that ends with the one that has started it, whatever ends that: `-m leftoff.cli.tethered`.

Its standard input is a pipe that nobody writes to. When the process at the other end is gone, even killed, the system
closes the pipe.
"""

import os
import signal
import sys
import threading
import time

from leftoff.cli.main import main

_STOP_S = 15.0  # for a server to end as on any SIGTERM


def _end_with_the_pipe() -> None:
    while os.read(0, 1 << 12):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_pipe, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
