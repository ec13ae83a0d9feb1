"""`python -m lab.bench` as people run it, on real servers with a tiny model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.factory import Scale, model_path
from tests.server.fixtures import settings


@pytest.fixture
def url() -> Iterator[str]:
    with open_host(settings()) as host, serving(host) as url:
        yield url


def test_both_servers_are_started_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(model_path("qwen35", Scale(context_length=4096)))
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "markdown")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    quick = ["--against", "llama-server", "--workload", "edit", "--quick", "--threads", "1"]
    assert main([model, *quick, *options]) == 0
    servers = json.loads(files["json"].read_text())[0]["workloads"]["edit"]["servers"]
    ours, theirs = servers["leftoff"], servers["llama-server"]
    assert ours["unavoidable"]["median"] == pytest.approx(theirs["unavoidable"]["median"], rel=0.02)
    assert ours["ratio"]["high"] <= 1.03 < theirs["ratio"]["low"]
    assert all(path.stat().st_size > 1000 for path in files.values())
    shown = capsys.readouterr().out
    assert "edit and come back" in shown
    assert "llama-server / leftoff" in shown


def test_a_running_server_is_asked_with_new_texts_each_time(url: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert main(["--url", url, "--workload", "regenerate", "--quick", "--rounds", "2", "--json", str(path)]) == 0
    runs = json.loads(path.read_text())[0]["workloads"]["regenerate"]["servers"][url]["runs"]
    assert [run["num_miscounted"] for run in runs] == [0, 0]
    assert all(0.9 * run["unavoidable"] < run["computed"] <= 1.05 * run["unavoidable"] for run in runs)


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        (["--url", "http://127.0.0.1:9", "--against", "cold"], "leave out --against"),
        (["--url", "http://127.0.0.1:9", "--workload", "restart"], "restart: needs a server"),
        (["--url", "http://127.0.0.1:9", "--workload", "edit"], "http://127.0.0.1:9 does not list its models"),
        (["--rounds", "0"], "at least 1"),
        (["no-such-file.gguf", "--workload", "edit"], "no-such-file.gguf"),
    ],
)
def test_mistakes_are_one_line_with_the_way_out(
    options: list[str], way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options]) == 1
    said = capsys.readouterr().err
    assert way_out in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("flag", ["--json", "--markdown"])
def test_bench_plays_nothing_that_it_could_not_write(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str
) -> None:
    file = tmp_path / "none" / "report"
    assert main([flag, str(file)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"leftoff: {flag} {file}: there is no folder {file.parent}: make it, or name another file\n"
    assert main([flag, str(tmp_path)]) == 1
    assert f"{flag} {tmp_path}: it cannot be written" in capsys.readouterr().err
