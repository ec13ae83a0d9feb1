"""llama-server's slots: saved under a name, restored, dropped; each tenant its own."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from leftoff.types import Prompt
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

STORY = "the river runs down from the hill " * 20


@contextmanager
def server(**changes: Any) -> Iterator[httpx.Client]:  # noqa: ANN401
    with (
        open_host(settings(slots=1, ctx=1024, **changes)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
    ):
        yield http


def complete(http: httpx.Client, prompt: Any, **fields: Any) -> Any:  # noqa: ANN401
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "return_tokens": True, "ignore_eos": True}
    return http.post("/completion", json=body | fields).json()


def act(http: httpx.Client, action: str, name: str = "story.bin", slot: int = 0, **fields: Any) -> httpx.Response:  # noqa: ANN401
    return http.post(f"/slots/{slot}?action={action}", json={"filename": name}, **fields)


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    tokens: list[int] = http.post("/tokenize", json={"content": text}).json()["tokens"]
    return tokens


def num_tokens(http: httpx.Client) -> int:
    (slot,) = http.get("/slots").json()
    return int(slot["n_tokens"])


def test_a_slot_is_saved_and_restored() -> None:
    with server() as http:
        told = complete(http, STORY)
        whole = tokens_of(http, STORY) + told["tokens"]
        saved = act(http, "save").json()
        assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (0, "story.bin", len(whole) - 1)
        assert saved["n_written"] > 0
        assert saved["timings"]["save_ms"] > 0
        complete(http, "every morning a small boat waits " * 20)
        restored = act(http, "restore").json()
        assert (restored["filename"], restored["n_restored"]) == ("story.bin", saved["n_saved"])
        assert (restored["n_read"], num_tokens(http)) == (saved["n_written"], saved["n_saved"])
        more = complete(http, [*whole, *tokens_of(http, " and then")])
        assert more["tokens_cached"] == saved["n_saved"], "nothing that was saved is read again"


@pytest.mark.usefixtures("quiet_disk")
def test_a_saved_slot_outlives_the_server(tmp_path: Path) -> None:
    with server(disk=64, cache_dir=str(tmp_path)) as http:
        told = complete(http, STORY)
        whole = tokens_of(http, STORY) + told["tokens"]
        saved = act(http, "save").json()
    with server(disk=64, cache_dir=str(tmp_path)) as http:
        assert num_tokens(http) == 0
        assert act(http, "restore").json()["n_restored"] == saved["n_saved"] == num_tokens(http)
        more = complete(http, [*whole, *tokens_of(http, " and then")])
        assert more["tokens_cached"] == saved["n_saved"]
        assert http.delete("/cache").status_code == 200
        assert act(http, "restore").json()["error"]["param"] == "filename", "it was forgotten with all the rest"


def test_a_slot_is_erased() -> None:
    with server() as http:
        complete(http, STORY)
        num_held = num_tokens(http)
        assert http.post("/slots/0?action=erase").json() == {"id_slot": 0, "n_erased": num_held}
        assert num_tokens(http) == 0
        assert http.post("/slots/0?action=erase").json()["n_erased"] == 0
        refused = act(http, "save")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "id")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "/etc/passwd", "x" * 200, "a\nb"])
def test_a_file_name_is_a_name_and_no_path(http: httpx.Client, name: str) -> None:
    for action in ("save", "restore"):
        refused = act(http, action, name)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "filename")


@pytest.mark.parametrize(
    ("path", "param"),
    [("0?action=burn", "action"), ("0", "action"), ("99?action=erase", "id"), ("x?action=erase", "id")],
)
def test_what_is_not_known_is_refused(http: httpx.Client, path: str, param: str) -> None:
    refused = http.post(f"/slots/{path}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert act(http, "restore", "never-saved").json()["error"]["param"] == "filename"


def test_a_tenant_touches_only_its_own() -> None:
    with server(api_key=("one", "two")) as http:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        body = {"prompt": STORY, "n_predict": 8}
        assert http.post("/completion", json=body, headers=one).status_code == 200
        assert act(http, "save", headers=two).json()["error"]["param"] == "id"
        assert act(http, "erase", headers=two).json()["n_erased"] == 0
        assert act(http, "save", headers=one).json()["n_saved"] > 0
        assert act(http, "restore", headers=two).json()["error"]["param"] == "filename"
        assert act(http, "restore", headers=one).json()["n_restored"] > 0


def test_a_slot_at_work_is_left_alone(http: httpx.Client, host: ModelHost) -> None:
    cache, prompt = host.cache, Prompt(np.arange(10, dtype=np.int32))
    turn = host.call(lambda: cache.begin(prompt)).result()
    assert turn is not None
    try:
        for action in ("save", "erase"):
            refused = act(http, action, slot=turn.seq)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    finally:
        host.call(lambda: cache.finish(turn)).result()
    assert act(http, "erase", slot=turn.seq).status_code == 200


def test_what_is_saved_just_before_a_deletion_is_deleted(tmp_path: Path) -> None:
    go_on = threading.Event()
    with (
        open_host(settings(slots=1, ctx=1024, disk=64, cache_dir=str(tmp_path))) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
        ThreadPoolExecutor() as pool,
    ):
        complete(http, STORY)
        host.call(lambda: go_on.wait(PATIENCE_S))
        calls = host._worker._calls  # type: ignore[union-attr]
        until(lambda: not calls)
        saving = pool.submit(act, http, "save")
        until(lambda: bool(calls))
        deleting = pool.submit(http.delete, "/cache")
        until(lambda: len(calls._waiting) == 2)
        go_on.set()
        assert (saving.result().status_code, deleting.result().status_code) == (200, 200)
        assert "nothing is saved under 'story.bin'" in act(http, "restore").text
