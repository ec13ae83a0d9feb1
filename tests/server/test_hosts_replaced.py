"""The file of a model is replaced while the model sleeps: who asks it is answered by the new one."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from leftoff.chat.work import checkpoint
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.engine.test_model import write_other_weights
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings
from tests.server.test_hosts import SAID, ask, opened, served


def work_until_closed() -> None:
    while True:
        checkpoint()
        time.sleep(0.01)


def test_a_file_that_was_replaced_is_another_model_under_the_same_name(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("gemma3"), tmp_path / "own.gguf"))
    with served("llama", "gemma3", most=1) as (url, models), served("qwen35") as (other, _):
        models[1]._make = partial(opened, "gemma3", {"model": str(path)})
        before = ask(url, "gemma3", SAID)["choices"][0]["text"]
        ask(url, "llama", SAID)
        Path(shutil.copy(model_path("qwen35"), tmp_path / "part")).replace(path)
        reply = ask(url, "gemma3", SAID)
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "what the old one has read is not for it"
        assert reply["choices"][0]["text"] == ask(other, "qwen35", SAID)["choices"][0]["text"] != before


def test_a_request_whose_prompt_is_made_as_its_file_is_replaced_is_answered_by_the_new_model(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("gemma3"), tmp_path / "own.gguf"))

    with served("llama", "gemma3", most=1) as (url, models), ThreadPoolExecutor(1) as beside:
        models[1]._make = partial(opened, "gemma3", {"model": str(path)})
        ask(url, "gemma3", SAID)
        ask(url, "llama", SAID)
        old = models[1].open()
        assert until(lambda: old.engine.is_asleep)
        old.lanes.later(work_until_closed, 0)
        waiting = beside.submit(ask, url, "gemma3", SAID)
        assert until(lambda: old.lanes.num_running == 2)
        Path(shutil.copy(model_path("qwen35"), tmp_path / "part")).replace(path)
        reply = ask(url, "gemma3", SAID)
        assert reply["choices"][0]["text"] == waiting.result()["choices"][0]["text"]
        assert not old.is_alive


def test_what_is_computed_with_weights_that_were_written_over_is_neither_said_nor_kept(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    kept: dict[str, Any] = {"model": str(path), "cache_dir": str(tmp_path / "cache"), "disk": 64, "deterministic": True}
    with open_host(settings("qwen35", **kept | {"disk": 0})) as host, serving(host) as url:
        expected = ask(url, "tiny", SAID)["choices"][0]["text"]
    with open_host(settings("qwen35", **kept)) as host, serving(host) as url:
        ask(url, "tiny", "before")
        before = path.read_bytes()
        write_other_weights(path)
        for _ in range(2):
            refused = httpx.post(f"{url}/v1/completions", json={"prompt": SAID, "max_tokens": 4}, timeout=PATIENCE_S)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
    with path.open("r+b") as file:
        file.write(before)
    with open_host(settings("qwen35", **kept)) as host, serving(host) as url:
        assert ask(url, "tiny", SAID)["choices"][0]["text"] == expected


def test_a_server_is_well_while_its_first_model_is_closed() -> None:
    with served("llama", "qwen35", most=2) as (url, models):
        for model in models:
            model.open()
        models[0].open().close()
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            assert http.get("/health").json()["status"] == "ok"
            with http.stream("GET", "/cache/events") as stream:
                assert stream.status_code == 200
            models[1].open().close()
            assert http.get("/health").status_code == 503
            assert "choices" in ask(url, "llama", SAID), "it is opened anew"
            assert http.get("/health").json()["status"] == "ok"


def asked_and_written_over(url: str, path: Path) -> str:
    """What the model said before its file was written over, which it then refuses to go on with."""
    old = str(ask(url, "gemma3", SAID)["choices"][0]["text"])
    write_other_weights(path)
    body = {"model": "gemma3", "prompt": SAID, "max_tokens": 4}
    assert httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S).status_code == 503
    return old


def test_a_model_among_others_that_was_written_over_is_opened_anew(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("gemma3"), tmp_path / "own.gguf"))
    with served("llama", "gemma3", most=2) as (url, models):
        models[1]._make = partial(opened, "gemma3", {"model": str(path)})
        old = asked_and_written_over(url, path)
        reply = ask(url, "gemma3", SAID)
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert reply["choices"][0]["text"] != old


def test_a_model_among_others_is_opened_anew_when_its_own_bytes_are_written_back(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("gemma3"), tmp_path / "own.gguf"))
    before = path.read_bytes()
    with served("llama", "gemma3", most=2) as (url, models):
        models[1]._make = partial(opened, "gemma3", {"model": str(path)})
        old = asked_and_written_over(url, path)
        with path.open("r+b") as file:
            file.write(before)
        assert ask(url, "gemma3", SAID)["choices"][0]["text"] == old
