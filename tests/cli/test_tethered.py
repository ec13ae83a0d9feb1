"""A server that ends with the process that has started it."""

import re
import subprocess
import sys
from contextlib import suppress

import httpx

from tests.factory import model_path
from tests.patience import PATIENCE_S, until

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "leftoff.cli.tethered", *sys.argv[1:]], stdin=subprocess.PIPE)
child.wait()
"""
FLAGS = ("--port", "0", "--ctx", "512", "--threads", "1", "--ram", "16", "--disk", "0")


def test_it_ends_when_its_parent_is_killed() -> None:
    command = [sys.executable, "-c", PARENT, "serve", str(model_path("llama")), *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        (url,) = next(filter(None, (re.findall(r"http://[\d.:]+\d", line) for line in parent.stdout)))
        assert httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
        parent.kill()
        assert until(lambda: not is_there(url))


def is_there(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
    return False
