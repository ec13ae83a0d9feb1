"""`leftoff prewarm` against a running server: files, and what clients used last."""

from pathlib import Path

import httpx
import pytest

from leftoff.cli.main import main
from tests.cli.here import served

HEADER = "an old man keeps a lamp in the window " * 40


def test_the_last_header_is_found_until_the_cache_is_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.txt").write_text(HEADER)
    with served("--cache-dir", str(tmp_path / "cache"), "--disk", "64") as server:
        to = ("--url", server.url)
        assert main(["prewarm", "--from-last", *to]) == 1
        assert "knows no header" in capsys.readouterr().err
        assert main(["prewarm", str(tmp_path / "rules.txt"), *to]) == 0
        assert "rules.txt: " in capsys.readouterr().out
        body = {"messages": [{"role": "system", "content": HEADER}, {"role": "user", "content": "hi"}], "max_tokens": 1}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        assert main(["prewarm", "--from-last", *to]) == 0
        assert capsys.readouterr().out.startswith("prewarmed “an old man keeps a lamp in the window")
        assert httpx.delete(f"{server.url}/cache", timeout=60).status_code == 200
        assert main(["prewarm", "--from-last", *to]) == 1, "the header is deleted too"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--from-last"),
        (["--from-last", "--url", "nowhere"], "is no address"),
        (["--from-last", "--url", "127.0.0.1:1"], "is `leftoff serve` running there?"),
        (["missing.txt"], "leftoff: missing.txt: it cannot be read (No such file or directory): give a text"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prewarm", *arguments]) == 1
    assert problem in capsys.readouterr().err
