"""Real processes: replicas, and a router over them. `tests/store/parts.py` has an index for both."""

import sys
from collections.abc import Sequence

from lab.bench.process import Process
from leftoff.hub.reference import default_model
from tests.store.parts import free_port

USUAL = ("--threads", "1", "--ctx", "4096", "--slots", "2", "--ram", "128", "--disk", "0")


def replica(*flags: str, models: Sequence[str] = ()) -> Process:
    """`leftoff serve` with these models, or the one that comes with leftoff."""
    serve = (sys.executable, "-m", "leftoff", "serve", *(models or [str(default_model())]))
    return Process([*serve, "--port", "0", *USUAL, *flags])


def router(*flags: str) -> Process:
    """`leftoff route`, once it knows a replica."""
    return Process([sys.executable, "-m", "leftoff", "route", "--port", "0", *flags])


def ray_cluster(*flags: str, port: bool = True, serve: Sequence[str] = ()) -> Process:
    """`leftoff cluster up`, once its router knows a replica. `serve` are flags for `leftoff serve`."""
    up = (sys.executable, "-m", "leftoff", "cluster", "up", "--cpus", "0.5")
    listening = ("--port", str(free_port())) if port else ()
    return Process([*up, *listening, *flags, "--", *USUAL, *serve])
