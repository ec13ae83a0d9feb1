"""Real processes: replicas, and a router over them. `tests/store/parts.py` has an index for both."""

import sys

from lab.bench.process import Process
from leftoff.hub import default_model


def replica(*flags: str) -> Process:
    """`leftoff serve` with the model that comes with leftoff."""
    usual = ("--port", "0", "--threads", "1", "--ctx", "4096", "--slots", "2", "--ram", "128", "--disk", "0")
    return Process([sys.executable, "-m", "leftoff", "serve", str(default_model()), *usual, *flags])


def router(*flags: str) -> Process:
    """`leftoff route`, once it knows a replica."""
    return Process([sys.executable, "-m", "leftoff", "route", "--port", "0", *flags])
