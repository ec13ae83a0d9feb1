"""A model that sleeps gives its memory back, and wakes without reading a token again."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.engine.errors import InputError
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

QUESTION = "The road goes up the hill and down to the harbour, where the boats lie. " * 8
LATE = 1000  # seconds: the tests say when


def ask(url: str, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": 4, "temperature": 0}
    answer = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE_S)
    return {"status": answer.status_code, **answer.json()}


def fall_asleep(host: ModelHost) -> None:
    host.call(host.scheduler.waking.sleep).result()


def turns(host: ModelHost, url: str, *, sleeps: bool) -> list[tuple[str, int]]:
    """The replies of a conversation, and how many tokens were computed for each."""
    said, seen = QUESTION, []
    for _ in range(3):
        reply = ask(url, said)
        seen.append((reply["content"], reply["timings"]["prompt_n"]))
        said += reply["content"] + " And then?"
        if sleeps:
            fall_asleep(host)
            assert httpx.get(f"{url}/props", timeout=PATIENCE_S).json()["is_sleeping"]
    host.call(host.cache.clear).result()
    return seen


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3", "mamba2", "rwkv7"])
def test_a_turn_after_a_sleep_reads_only_what_is_new(architecture: str) -> None:
    chosen = settings(architecture, sleep_idle_seconds=LATE, deterministic=True)
    with open_host(chosen) as host, serving(host) as url:
        awake = turns(host, url, sleeps=False)
        assert turns(host, url, sleeps=True) == awake
    assert awake[1][1] < awake[0][1] // 2, "something was reused"


def test_drafts_of_the_next_token_layer_go_on_after_a_sleep() -> None:
    with open_host(settings("qwen35-mtp", sleep_idle_seconds=LATE, draft="mtp")) as host, serving(host) as url:
        assert host.engine.head is not None
        awake = turns(host, url, sleeps=False)
        assert [text for text, _ in turns(host, url, sleeps=True)] == [text for text, _ in awake]


def test_it_sleeps_by_itself_once_nothing_was_asked_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "leftoff")
    with open_host(settings(sleep_idle_seconds=0)) as host, serving(host) as url:
        for _ in range(2):
            assert ask(url, QUESTION)["status"] == 200
            assert until(lambda: host.engine.is_asleep)
    assert "sleeps: the next request loads it again" in caplog.text
    assert "is awake again after" in caplog.text


def test_everything_but_replies_is_answered_in_its_sleep() -> None:
    with open_host(settings(sleep_idle_seconds=LATE)) as host, serving(host) as url:
        ask(url, QUESTION)
        fall_asleep(host)
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            for path in ("/health", "/props", "/slots", "/v1/models", "/cache", "/cache/tree", "/metrics", "/engine"):
                assert http.get(path).status_code == 200, path
            assert http.post("/tokenize", json={"content": QUESTION}).json()["tokens"]
            assert http.delete("/cache").status_code == 200
        assert host.engine.is_asleep
        assert ask(url, QUESTION)["timings"]["cache_n"] == 0, "it was deleted"


def test_a_saved_slot_is_restored_after_a_sleep() -> None:
    with open_host(settings(sleep_idle_seconds=LATE)) as host, serving(host) as url:
        ask(url, QUESTION)
        name = {"filename": "road"}
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            saved = http.post("/slots/0?action=save", json=name).json()
            fall_asleep(host)
            assert http.post("/slots/0?action=restore", json=name).json()["n_restored"] == saved["n_saved"]
        assert host.engine.is_asleep, "the prompt that goes on wakes it, and nothing else does"
        assert ask(url, QUESTION)["timings"]["prompt_n"] < 8


def test_a_model_whose_file_is_gone_or_another_one_fails_its_requests_and_nothing_else(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    with open_host(settings(model=str(path), sleep_idle_seconds=LATE)) as host, serving(host) as url:
        content = ask(url, QUESTION)["content"]
        fall_asleep(host)
        moved = path.rename(tmp_path / "moved.gguf")
        assert "there is no model file at" in ask(url, QUESTION)["error"]["message"]
        shutil.copy(model_path("llama"), path)
        assert "is not the model any more that was loaded" in ask(url, QUESTION)["error"]["message"]
        assert host.engine.is_asleep
        shutil.copy(moved, path)  # another file of the same content
        again = ask(url, QUESTION)
        assert (again["content"], again["timings"]["prompt_n"] < 8) == (content, True)


def test_one_that_was_not_loaded_to_sleep_stays_awake() -> None:
    with open_host(settings()) as host, serving(host) as url:
        with pytest.raises(InputError, match="was not loaded to sleep"):
            fall_asleep(host)
        assert ask(url, QUESTION)["status"] == 200
