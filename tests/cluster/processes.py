"""Real processes: replicas, and a router over them. `tests/store/parts.py` has an index for both."""

import sys

from lab.bench.process import Process
from leftoff.hub import default_model
from tests.store.parts import free_port

USUAL = ("--threads", "1", "--ctx", "4096", "--slots", "2", "--ram", "128", "--disk", "0")


def replica(*flags: str) -> Process:
    """`leftoff serve` with the model that comes with leftoff."""
    return Process([sys.executable, "-m", "leftoff", "serve", str(default_model()), "--port", "0", *USUAL, *flags])


def router(*flags: str) -> Process:
    """`leftoff route`, once it knows a replica."""
    return Process([sys.executable, "-m", "leftoff", "route", "--port", "0", *flags])


def ray_cluster(*flags: str) -> Process:
    """`leftoff cluster up`, once its router knows a replica."""
    up = (sys.executable, "-m", "leftoff", "cluster", "up", "--port", str(free_port()), "--cpus", "0.5")
    return Process([*up, *flags, "--", *USUAL])
