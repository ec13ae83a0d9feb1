"""Names and texts of others move no cursor, write no line of their own, and are no markup: in a terminal or a log."""

import io
import logging
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console

from leftoff.cli.loading import logging_to_stderr
from leftoff.cli.main import main
from leftoff.cli.progress import show_stages
from leftoff.units import one_line, printable
from tests.disk.stores import page, path_of, store_in, written

EVIL = "\x1b[2J\x1b]0;title\x07model\r\n12:00:00 all is well\x9b31m[bold]x[/bold]\x00"


def is_clean(output: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in output)


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A cache folder whose model has such a name, and a row of which the name is one."""
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000)], path_of(1000))
    (index,) = tmp_path.glob("v1/*/index.sqlite")
    with sqlite3.connect(index) as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('label', ?)", (EVIL,))
        connection.execute(
            'INSERT INTO blob SELECT ?, kind, tag, namespace, start, "end", nbytes, file_bytes, last_used, hits '
            "FROM blob",
            ("../../../" + EVIL,),
        )
    connection.close()
    return tmp_path


@pytest.mark.parametrize("action", [("list",), ("verify",), ("show", ""), ("list", "--model", "gpt"), ("clear",)])
def test_what_a_cache_folder_says_is_shown_as_plain_text(
    evil: Path, capsys: pytest.CaptureFixture[str], action: tuple[str, ...]
) -> None:
    main(["cache", action[0], "--cache-dir", str(evil), *action[1:]])
    shown = capsys.readouterr()
    assert "model" in shown.out + shown.err
    assert is_clean(shown.out + shown.err)
    assert not any(line.startswith("12:00:00") for line in shown.out.splitlines())


def test_a_log_line_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("info"):
        logging.getLogger("leftoff.test").warning("a note: %s", EVIL)
        logging.getLogger("uvicorn.error").warning("a header: %s", EVIL)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert is_clean("".join(lines))


def test_an_error_says_a_name_as_plain_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "import", "--cache-dir", str(tmp_path), str(tmp_path / "\x1b[2Jx")]) == 1
    assert is_clean(capsys.readouterr().err)


def test_a_progress_bar_takes_no_markup_from_the_name_of_a_file() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with show_stages(console, visible=True) as begin:
        begin("loading [bold]x[/bold][/nothing]")(0.5)
    assert isinstance(console.file, io.StringIO)
    assert "[bold]x[/bold][/nothing]" in console.file.getvalue()


def test_replies_keep_their_lines_and_names_do_not() -> None:
    assert printable("a\n\tb\x1b[0m\x9b\r") == "a\n\tb[0m"
    assert one_line(" a\n\tb\x1b[0m ") == "a b[0m"
