"""`leftoff cluster up`, where Ray is installed: two replicas behind one address, and conversations that stay."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from lab.bench.process import Process
from leftoff.cli.main import main
from tests.cluster.test_proxy import chat
from tests.patience import PATIENCE_S
from tests.store.parts import free_port, redis


@pytest.mark.parametrize("text", ["0", "3:2", "x", "2:y"])
def test_a_wrong_number_of_replicas_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--replicas", text]) == 1
    assert f"--replicas {text}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'leftoff[ray]' to test the cluster on it")
    store: Path = tmp_path_factory.mktemp("store")
    address = f"http://127.0.0.1:{free_port()}"
    with redis() as index:
        up = ("--port", address.rpartition(":")[2], "--replicas", "2", "--cpus", "0.5")
        shared = ("--index", index.url, "--store", f"file://{store}")
        serving = ("--", "--threads", "1", "--ctx", "4096", "--slots", "2", "--ram", "128", "--disk", "0")
        process = Process([sys.executable, "-m", "leftoff", "cluster", "up", *up, *shared, *serving])
        yield process.url
        process.close()


def test_conversations_find_their_state_again(url: str) -> None:
    computed = []
    for name in ("Ada", "Bob"):
        said = [f"My name is {name}."]
        for question in ("What is my name?", "Say it again.", "And once more."):
            answer = chat(url, *said).json()
            computed.append(answer["timings"]["prompt_n"])
            said += [answer["choices"][0]["message"]["content"], question]
    assert computed[0] > 200
    assert max(computed[1:3] + computed[4:]) < 100, "only the first prompt of a conversation is read as a whole"


def test_the_router_of_the_ingress_tells_its_figures(url: str) -> None:
    chat(url, "Hello")
    assert "leftoff_route_requests_total" in httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text


def test_what_a_replica_refuses_is_refused(url: str) -> None:
    assert chat(url, "Hello", temperature="hot").status_code == 400


@pytest.mark.filterwarnings("ignore")  # those of Ray itself
def test_replicas_are_added_by_requests_and_by_what_is_to_be_read() -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'leftoff[ray]' to test the cluster on it")
    from leftoff.cluster.ray_serve import ScaleByWork  # noqa: PLC0415

    scale = ScaleByWork(target_requests=4, target_read_s=5)
    by_requests = SimpleNamespace(total_num_requests=9, aggregated_metrics={"queued_s": {"a": 1.0, "b": 2.0}})
    by_reading = SimpleNamespace(total_num_requests=2, aggregated_metrics={"queued_s": {"a": 19.0, "b": 2.0}})
    unknown = SimpleNamespace(total_num_requests=2, aggregated_metrics=None)
    assert [scale(context)[0] for context in (by_requests, by_reading, unknown)] == [3, 5, 1]
