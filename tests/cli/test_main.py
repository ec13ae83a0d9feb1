"""The command itself: what it knows without loading what it does not need."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from leftoff.cli.main import _COMMANDS, main


def test_help_lists_every_command_and_loads_none() -> None:
    code = """
import sys
from leftoff.cli.main import main
try:
    main(["--help"])
finally:
    assert "numpy" not in sys.modules, "the engine was loaded for a word of help"
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name, summary in _COMMANDS.items():
        assert name in shown
        assert summary.split()[0] in shown


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help_of_its_own(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exited:
        main([name, "--help"])
    assert exited.value.code == 0
    shown = capsys.readouterr().out
    assert f"leftoff {name}" in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert callable(import_module(f"leftoff.cli.{name}").add_parser)


def leftoff(*arguments: str, **environment: str) -> list[str]:
    settings = [f"{name}={value}" for name, value in environment.items()]
    return ["env", "-u", "PYTHONUNBUFFERED", *settings, sys.executable, "-m", "leftoff", *arguments]


@pytest.mark.parametrize("arguments", [("--help",), ("cache", "list", "--json"), ("cache", "list")])
def test_whoever_stops_reading_gets_no_complaint(arguments: tuple[str, ...], tmp_path: Path) -> None:
    command = leftoff(*arguments, LEFTOFF_CACHE_DIR=str(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("cache", "list", "--json")])
def test_output_that_cannot_be_written_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    command = leftoff(*arguments, LEFTOFF_CACHE_DIR=str(tmp_path))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "leftoff: the output cannot be written (No space left on device)\n"


def test_letters_that_cannot_be_shown_are_replaced(tmp_path: Path) -> None:
    command = leftoff("cache", "list", LEFTOFF_CACHE_DIR=str(tmp_path / "größe"), PYTHONIOENCODING="ascii")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr??e" in done.stdout.replace("\n", "")


def test_an_interrupt_while_a_command_is_loaded_is_quiet() -> None:
    code = """
import importlib.abc, sys
from leftoff.cli.main import main

class Interrupted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "leftoff.cli.doctor":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.exit(main(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["serv"])
    assert exited.value.code == 2
    assert "'serv' is unknown: did you mean serve?" in capsys.readouterr().err


def test_a_command_like_none_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    assert "'xyzzy' is unknown: must be one of serve, " in capsys.readouterr().err


def test_the_commands_of_a_command_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for name, actions in {
        "cluster": ("up", "key"),
        "cache": ("list", "prune"),
        "engine": ("install", "remove"),
    }.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        shown = capsys.readouterr().out.partition("ACTION" if name != "cluster" else "commands:")[2]
        assert all(f"    {action} " in shown for action in actions)


# What Windows has of its own under these names is loaded before: only what leftoff asks for is to be missing.
WINDOWS = """
import asyncio, ctypes, multiprocessing, socket, subprocess, tempfile, uuid, webbrowser
import rich.console, httpx, numpy, uvicorn, starlette.applications
import importlib.abc, os, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "termios", "pwd", "grp", "readline"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource", "termios", "pwd", "grp", "readline"):
    sys.modules.pop(name, None)
for name in ("sysconf", "statvfs", "geteuid", "getuid", "sched_getaffinity", "posix_fadvise", "O_NOFOLLOW"):
    if hasattr(os, name):
        delattr(os, name)
sys.meta_path.insert(0, Missing())
sys.platform = "win32"
import leftoff
assert leftoff.__version__
import contextlib, io, json
from leftoff.cli.main import main

def run(words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except SystemExit as exit:
            code = exit.code
    return code, out.getvalue(), err.getvalue()

print(json.dumps([run(words.split()) for words in sys.argv[1:]]))
"""


def on_windows(*commands: str) -> list[tuple[int, str, str]]:
    """The exit code of each command, and what it says. A process for all: none of them gets far."""
    done = subprocess.run([sys.executable, "-c", WINDOWS, *commands], capture_output=True, text=True, check=True)
    return [tuple(each) for each in json.loads(done.stdout)]


def test_on_windows_there_is_help_and_it_says_what_to_do() -> None:
    for code, out, err in on_windows("", "--help"):
        assert (code, err) == (0, "")
        assert "WSL2" in out
        assert all(name in out for name in _COMMANDS)


def test_on_windows_a_command_says_in_one_line_what_is_missing() -> None:
    for code, out, err in on_windows("serve", "chat --help", "models", "cache list"):
        assert (code, out) == (1, "")
        assert re.fullmatch(r"leftoff: this takes (fcntl|resource), which this system lacks\. .*WSL2.*\n", err)


def test_where_we_are_now_nobody_is_told_of_windows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "WSL2" not in capsys.readouterr().out
