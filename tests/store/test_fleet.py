"""Servers that share a store, as processes of their own; and what a server without one must not import."""

import subprocess
import sys

UNUSED = "import sys, leftoff.cli.serve, leftoff.server.server; print([*{'redis', 'obstore'} & {*sys.modules}])"


def test_nothing_of_the_extra_is_imported_without_it() -> None:
    shown = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
