"""The command itself: what it knows without loading what it does not need."""

import subprocess
import sys
from importlib import import_module

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
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main([name, "--help"])
    assert exited.value.code == 0
    assert f"leftoff {name}" in capsys.readouterr().out
    assert callable(import_module(f"leftoff.cli.{name}").add_parser)


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["serv"])
    assert exited.value.code == 2
    assert "'serv'" in capsys.readouterr().err
