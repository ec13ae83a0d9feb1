"""`leftoff cluster up`, where Ray is installed: replicas behind one address, that Ray starts again when they die."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from lab.bench.errors import BenchError
from lab.bench.process import Process
from leftoff.cli.main import main
from tests.cluster.processes import ray_cluster
from tests.cluster.test_proxy import HEADER, chat, known
from tests.patience import PATIENCE_S, until
from tests.store.parts import free_port, redis

NO_RAY = "ray is not installed: pip install 'leftoff[ray]' to test the cluster on it"


@pytest.mark.parametrize("text", ["0", "3:2", "x", "2:y"])
def test_a_wrong_number_of_replicas_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--replicas", text]) == 1
    assert f"--replicas {text}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    pytest.importorskip("ray", reason=NO_RAY)
    store: Path = tmp_path_factory.mktemp("store")
    with redis() as index, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")  # another test may have started one at the same time
        shared = ("--index", index.url, "--store", f"file://{store}")
        process = ray_cluster("--replicas", "2", *shared, serve=("--alias", "two words"))
        assert until(lambda: len(known(process)) == 2)
        yield process
        process.close()


def story(url: str) -> "httpx._client.StreamContextManager":  # type: ignore[name-defined]
    body = {"messages": [{"role": "system", "content": HEADER}, {"role": "user", "content": "Tell me a story."}]}
    return httpx.stream(
        "POST",
        f"{url}/v1/chat/completions",
        json=body | {"stream": True, "max_tokens": 2000, "ignore_eos": True},
        timeout=PATIENCE_S,
    )


def listens(url: str) -> bool:
    try:
        httpx.get(url, timeout=PATIENCE_S)
    except httpx.TransportError:
        return False
    return True


def process_at(url: str) -> int:
    """The id of the server process that listens there."""
    port = int(url.rpartition(":")[2])
    (sock,) = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(handle.readlink()) == f"socket:[{sock}]":
                return int(handle.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody listens at {url}")


def test_conversations_find_their_state_again(cluster: Process) -> None:
    computed = []
    for name in ("Ada", "Bob"):
        said = [f"My name is {name}."]
        for question in ("What is my name?", "Say it again.", "And once more."):
            answer = chat(cluster.url, *said).json()
            computed.append(answer["timings"]["prompt_n"])
            said += [answer["choices"][0]["message"]["content"], question]
    assert computed[0] > 200
    assert max(computed[1:3] + computed[4:]) < 100, "only the first prompt of a conversation is read as a whole"


def test_the_router_of_the_ingress_tells_its_figures(cluster: Process) -> None:
    chat(cluster.url, "Hello")
    assert "leftoff_route_requests_total" in httpx.get(f"{cluster.url}/metrics", timeout=PATIENCE_S).text


def test_what_a_replica_refuses_is_refused(cluster: Process) -> None:
    assert chat(cluster.url, "Hello", temperature="hot").status_code == 400


def test_a_flag_may_have_spaces(cluster: Process) -> None:
    assert {each["model"] for each in known(cluster)} == {"two words"}


def test_replicas_of_this_machine_alone_listen_for_it_alone(cluster: Process) -> None:
    assert all(str(each["url"]).startswith("http://127.0.0.1:") for each in known(cluster))


def test_stored_responses_are_found(cluster: Process) -> None:
    def post(**fields: object) -> httpx.Response:
        body = {"max_output_tokens": 16, **fields}
        return httpx.post(f"{cluster.url}/v1/responses", json=body, timeout=PATIENCE_S)

    for number in range(4):
        first = post(input=f"{number}: My name is Ada.").json()["id"]
        assert post(input="What is my name?", previous_response_id=first).status_code == 200
        assert httpx.get(f"{cluster.url}/v1/responses/{first}", timeout=PATIENCE_S).status_code == 200


def test_a_stream_comes_token_by_token_and_ends_with_its_client(cluster: Process) -> None:
    with story(cluster.url) as stream:
        lines = stream.iter_lines()
        assert len([next(lines) for _ in range(8)]) == 8
        assert sum(int(str(each["in_flight"])) for each in known(cluster)) == 1, "it goes on"
    assert until(lambda: all(each["in_flight"] == 0 for each in known(cluster)))
    assert until(lambda: all(each["load"]["num_running"] == 0 for each in known(cluster)))  # type: ignore[index]


def test_a_replica_that_is_killed_is_started_again(cluster: Process) -> None:
    """One that had begun ends with an error in the words of its dialect; the next is answered by the other replica."""
    urls = {str(each["id"]): str(each["url"]) for each in known(cluster)}
    with story(cluster.url) as stream:
        home = stream.headers["x-leftoff-replica"]
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        os.kill(process_at(urls[home]), signal.SIGKILL)
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_failed"
    answer = chat(cluster.url, "Tell me a story.")
    assert answer.status_code == 200
    assert answer.headers["x-leftoff-replica"] in urls.keys() - {home}
    assert until(lambda: len(known(cluster)) == 2 and home not in {each["id"] for each in known(cluster)})
    assert chat(cluster.url, "Hello").status_code == 200


OTHER = """
import os, sys
os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
import ray
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0})
def other(_):
    return "other"

ray.init(address="local", include_dashboard=False, num_cpus=1)
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(other.bind(), name="other", route_prefix="/other")
print("RAY_ADDRESS", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


def test_a_cluster_that_is_shared_keeps_its_other_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason=NO_RAY)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # a token of Ray is known to the process alone that starts it so
    port = free_port()
    command = [sys.executable, "-c", OTHER, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        address = next(line.split()[1] for line in other.stdout if line.startswith("RAY_ADDRESS"))
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(BenchError, match=f"listens on 127.0.0.1:{port}: leave --port out"):
            ray_cluster()
        process = ray_cluster("--api-key", "one", port=False)
        assert process.url == f"http://127.0.0.1:{port}"
        key = {"authorization": "Bearer one"}
        assert until(lambda: known(process, key))
        (url,) = (each["url"] for each in known(process, key))
        for where in (url, process.url):
            assert httpx.get(f"{where}/v1/models", timeout=PATIENCE_S).status_code == 401
            assert httpx.get(f"{where}/v1/models", headers=key, timeout=PATIENCE_S).status_code == 200
        process.close()
        assert httpx.get(f"http://127.0.0.1:{port}/other", timeout=PATIENCE_S).text == "other"
        assert httpx.get(process.url, timeout=PATIENCE_S).status_code == 404
        assert until(lambda: not listens(str(url))), "it ends with its application"
        other.stdin.close()


@pytest.mark.filterwarnings("ignore")  # those of Ray itself
def test_replicas_are_added_by_requests_and_by_what_is_to_be_read() -> None:
    pytest.importorskip("ray", reason=NO_RAY)
    from leftoff.cluster.ray_serve import ScaleByWork  # noqa: PLC0415

    scale = ScaleByWork(target_requests=4, target_read_s=5)
    by_requests = {"requests": {"a": 6.0, "b": 3.0}, "read_s": {"a": 1.0, "b": 2.0}}
    by_reading = {"requests": {"a": 2.0}, "read_s": {"a": 19.0, "b": 2.0}}
    decided = [scale(SimpleNamespace(aggregated_metrics=told))[0] for told in (by_requests, by_reading, None)]
    assert decided == [3, 5, 0], "Ray holds it between the fewest and the most replicas"
