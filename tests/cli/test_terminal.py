"""What commands print can be copied."""

import pytest

from leftoff.cli.terminal import show_rows, terminal

PATH = f"/home/anna/{'a-long-folder/' * 9}model.gguf"


@pytest.mark.parametrize("width", [10, 40, 300])
def test_a_path_stays_whole_and_words_are_not_broken(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = "24 MiB of a small model that is here"
    show_rows(terminal(), [("file", f"{words} {PATH}"), ("devices", "CPU\nGPU [bold] :cat:")])
    shown = capsys.readouterr().out
    assert PATH in shown
    assert {*words.split()} < {*shown.split()}
    assert "  devices  CPU\n           GPU [bold] :cat:\n" in shown


def test_a_line_is_left_to_the_terminal_to_break(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal().print(f"leftoff · {PATH}", style="bold")
    assert capsys.readouterr().out == f"leftoff · {PATH}\n"
