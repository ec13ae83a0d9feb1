"""Several models behind one address: each answers to its name, in its turn, and reads nothing twice."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from leftoff.cli.main import main
from leftoff.config import MIB
from leftoff.host.budgets import Capacities
from leftoff.host.build import fitted, open_host
from leftoff.host.host import ModelHost
from leftoff.host.kept import cache_root
from leftoff.host.late_host import LateHost
from leftoff.host.request_log import RequestLog
from leftoff.host.seats import Seats
from leftoff.scheduler.gate import Gate
from leftoff.server.hosts import Hosts
from leftoff.server.server import serving
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

SAID = "The road goes up the hill and down to the harbour, where the boats lie. " * 6
NUM_ROUNDS = 3
RAM_MIB = 64


def opened(
    architecture: str,
    changes: dict[str, object],
    gate: Gate,
    log: RequestLog | None = None,
    shared: Capacities | None = None,
) -> ModelHost:
    fit = fitted(settings(architecture, **({"alias": (architecture,)} | changes)))
    return open_host(replace(fit, shared=shared), gate=gate, log=log)


@contextmanager
def served(
    *architectures: str, most: int = 1, aliases: Mapping[str, Sequence[str]] | None = None, **changes: object
) -> Iterator[tuple[str, list[LateHost]]]:
    seats, log, shared = Seats(most=most), RequestLog(256), Capacities(RAM_MIB * MIB)

    def late(name: str) -> LateHost:
        own = {"alias": (name, *(aliases or {}).get(name, ()))} | changes
        make, chosen = partial(opened, name, own, log=log, shared=shared), settings(name, **own)
        disk = shared.disk(cache_root(chosen)) if chosen.disk else None
        return LateHost(name, seats.add(), make, settings=chosen, disk=disk)

    models = [late(name) for name in architectures]
    with ExitStack() as stack:
        for model in models:
            stack.callback(model.close)
        models[0].open()
        yield stack.enter_context(serving(Hosts(models[0], models[1:]))), models


@pytest.fixture(scope="module")
def two_models() -> Iterator[tuple[str, list[LateHost]]]:
    aliases = {"llama": ["haiku", "claude-*"], "qwen35": ["claude-haiku", "gpt-*", "claude-*"]}
    with served("llama", "qwen35", most=2, aliases=aliases) as both:
        yield both


@pytest.fixture(scope="module")
def one_awake() -> Iterator[tuple[str, list[LateHost]]]:
    """Of two models, one sleeps."""
    with served("llama", "qwen35", most=1) as both:
        yield both


@contextmanager
def ollama_client(url: str) -> Iterator[ollama.Client]:
    client = ollama.Client(host=url, timeout=PATIENCE_S)
    with closing(client):
        yield client


def ask(url: str, model: str, prompt: str) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
    return dict(httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S).json())


def conversations(url: str, *models: str) -> list[tuple[str, int]]:
    """Three turns of a conversation with each model, in turn: the replies, and the tokens computed for each."""
    said, seen = dict.fromkeys(models, SAID), []
    for _ in range(3):
        for model in models:
            reply = ask(url, model, said[model])
            text, usage = reply["choices"][0]["text"], reply["usage"]
            seen.append((text, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]))
            said[model] += text + " And then?"
    return seen


def test_models_that_take_turns_read_nothing_twice() -> None:
    together: list[tuple[str, int]] = []
    with served("qwen35", "gemma3", deterministic=True) as (url, models):
        together = conversations(url, "qwen35", "gemma3")
        assert sum(not model.open().engine.is_asleep for model in models) == 1
    alone = []
    for name in ("qwen35", "gemma3"):
        with served(name, deterministic=True) as (url, _):
            alone.append(conversations(url, name))
    assert together == [turn for turns in zip(*alone, strict=True) for turn in turns]


def test_models_that_fit_together_stay_awake(two_models: tuple[str, list[LateHost]]) -> None:
    url, models = two_models
    conversations(url, "llama", "qwen35")
    assert not any(model.open().engine.is_asleep for model in models)


def test_a_name_that_nobody_has_is_told_with_those_that_there_are() -> None:
    with served("llama", "qwen35") as (url, _):
        error = ask(url, "gpt-9", SAID)["error"]
        assert error["code"] == "model_not_found"
        assert "there is no model 'gpt-9' here: choose one of llama, qwen35" in error["message"]
        listed = httpx.get(f"{url}/v1/models", timeout=PATIENCE_S).json()["data"]
        assert [(card["id"], card["status"]["value"]) for card in listed] == [
            ("llama", "loaded"),
            ("qwen35", "unloaded"),
        ]
        assert [card["created"] for card in listed] == [
            int(model_path(name).stat().st_mtime) for name in ("llama", "qwen35")
        ]
        assert "choices" in ask(url, "", SAID), "without a name the first answers"
        assert "choices" in ask(url, "qwen35:latest", SAID), "as Ollama's clients name it"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("haiku", "llama"),
        ("haiku:latest", "llama"),
        ("claude-haiku", "qwen35"),
        ("claude-opus", "llama"),
        ("gpt-9", "qwen35"),
        ("gpt-9:latest", "qwen35"),
        ("llama", "llama"),
    ],
)
def test_a_name_goes_before_a_pattern_and_the_first_model_before_the_next(
    two_models: tuple[str, list[LateHost]], model: str, name: str
) -> None:
    assert ask(two_models[0], model, SAID)["model"] == name


def test_lists_have_the_aliases_of_each_model(two_models: tuple[str, list[LateHost]]) -> None:
    with httpx.Client(base_url=two_models[0], timeout=PATIENCE_S) as http:
        listed = http.get("/v1/models").json()["data"]
        assert [(card["id"], card["aliases"]) for card in listed] == [
            ("llama", ["haiku", "claude-*"]),
            ("qwen35", ["claude-haiku", "gpt-*", "claude-*"]),
        ]
        assert http.get("/v1/models/gpt-9").json()["aliases"] == ["claude-haiku", "gpt-*", "claude-*"]
        refused = http.get("/v1/models/mistral")
        assert refused.status_code == 404
        names = "llama, haiku, claude-*, qwen35, claude-haiku, gpt-*, claude-*"
        assert refused.json()["error"]["message"] == f"there is no model 'mistral' here: choose one of {names}"


def test_the_clients_of_all_dialects_choose(two_models: tuple[str, list[LateHost]]) -> None:
    url, _ = two_models
    message: Any = [{"role": "user", "content": SAID}]
    for model, name in (("haiku", "llama"), ("gpt-9", "qwen35")):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=PATIENCE_S) as by_openai:
            assert by_openai.chat.completions.create(model=model, messages=message, max_tokens=1).model == name
            assert by_openai.responses.create(model=model, input=SAID, max_output_tokens=16).model == name
            assert [card.id for card in by_openai.models.list()] == ["llama", "qwen35"]
        with anthropic.Anthropic(base_url=url, api_key="any", timeout=PATIENCE_S) as by_anthropic:
            assert by_anthropic.messages.create(model=model, messages=message, max_tokens=1).model == name
            assert [card.id for card in by_anthropic.models.list()] == ["llama", "qwen35"]
        with ollama_client(url) as by_ollama:
            assert by_ollama.chat(model, message, options={"num_predict": 1}).model == f"{name}:latest"
            assert [one.model for one in by_ollama.list().models] == ["llama:latest", "qwen35:latest"]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as by_openai, pytest.raises(openai.NotFoundError):
        by_openai.chat.completions.create(model="mistral", messages=message)
    with anthropic.Anthropic(base_url=url, api_key="any") as by_anthropic, pytest.raises(anthropic.NotFoundError):
        by_anthropic.messages.create(model="mistral", messages=message, max_tokens=1)
    with ollama_client(url) as by_ollama, pytest.raises(ollama.ResponseError, match="there is no model 'mistral' here"):
        by_ollama.chat("mistral", message)


def test_a_model_that_nobody_has_asked_is_described_and_not_loaded() -> None:
    with served("llama", "qwen35", aliases={"qwen35": ["gpt-*"]}) as (url, models), ollama_client(url) as client:
        before, unopened = client.show("qwen35"), client.list().models[1]
        for name in ("gpt-9", "qwen35:latest"):
            assert client.show(name) == before
        assert models[1].host is None, "it was not opened for that"
        host = models[1].open()
        after, opened = client.show("qwen35"), client.list().models[1]
        assert before.details is not None
        assert after.details is not None
        assert before.details.quantization_level == ""
        after.details.quantization_level = ""
        assert before == after
        assert (unopened.model, unopened.modified_at) == (opened.model, opened.modified_at)
        assert unopened.size == host.model.path.stat().st_size
        assert len(unopened.digest or "") == 64


def test_one_model_with_aliases_answers_to_its_names_alone() -> None:
    with served("llama", aliases={"llama": ["gpt-*"]}) as (url, _):
        assert ask(url, "gpt-9", SAID)["model"] == ask(url, "llama", SAID)["model"] == "llama"
        assert ask(url, "mistral", SAID)["error"]["code"] == "model_not_found"
    with served("llama") as (url, _):
        assert ask(url, "mistral", SAID)["model"] == "llama", "without aliases it answers whatever is asked"


def test_a_model_that_cannot_be_opened_fails_its_own_requests_only() -> None:
    with served("llama", "qwen35", most=1) as (url, models):
        broken = models[1]
        broken._make = partial(opened, "llama", {"model": "nowhere.gguf"})
        for _ in range(2):
            assert "there is no model file at nowhere.gguf" in ask(url, "qwen35", SAID)["error"]["message"]
            assert "choices" in ask(url, "llama", SAID)
        broken._make = partial(opened, "qwen35", {})
        assert "choices" in ask(url, "qwen35", SAID), "it was mended"


def test_many_clients_of_two_models_are_all_answered(one_awake: tuple[str, list[LateHost]]) -> None:
    url, _ = one_awake
    answers: list[dict[str, Any]] = []

    def client(number: int) -> None:
        for turn in range(NUM_ROUNDS):
            answer = ask(url, ("llama", "qwen35")[(number + turn) % 2], f"{number} {SAID}")
            answers.append(answer)

    clients = [Thread(target=client, args=(number,)) for number in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(PATIENCE_S)
    assert len(answers) == 6 * NUM_ROUNDS
    assert all("choices" in answer for answer in answers)


def test_clients_of_ollama_and_of_llama_server_choose_too(two_models: tuple[str, list[LateHost]]) -> None:
    url, models = two_models
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        assert (
            http.post("/completion", json={"model": "qwen35", "prompt": SAID, "n_predict": 1}).json()["model"]
            == "qwen35"
        )
        assert http.get("/props?model=qwen35").json()["model_alias"] == "qwen35"
        assert [model["name"] for model in http.get("/api/tags").json()["models"]] == ["llama:latest", "qwen35:latest"]
        http.post("/api/generate", json={"model": "qwen35", "keep_alive": 0}).raise_for_status()
        assert [model["name"] for model in http.get("/api/ps").json()["models"]] == ["llama:latest"]
        assert len(http.get("/api/tags").json()["models"]) == 2, "one that sleeps is described as well"
        assert [model.open().engine.is_asleep for model in models] == [False, True]


def test_headers_are_read_ahead_by_the_model_that_is_named(
    two_models: tuple[str, list[LateHost]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.txt").write_text(SAID)
    url, models = two_models
    httpx.delete(f"{url}/cache", timeout=PATIENCE_S).raise_for_status()
    assert main(["prewarm", str(tmp_path / "rules.txt"), "--url", url, "--model", "qwen35"]) == 0
    assert "rules.txt: " in capsys.readouterr().out
    assert models[0].open().cache.ram.budget.num_points == 0 < models[1].open().cache.ram.budget.num_points
    assert main(["headers", "--url", url, "--model", "mistral"]) == 1
    assert "there is no model 'mistral'" in capsys.readouterr().err


def test_what_is_deleted_is_deleted_from_all_of_them(one_awake: tuple[str, list[LateHost]]) -> None:
    url, _ = one_awake
    conversations(url, "llama", "qwen35")
    freed = httpx.delete(f"{url}/cache", timeout=PATIENCE_S).json()
    assert freed["freed_bytes"] > 0
    for model in ("llama", "qwen35"):
        usage = ask(url, model, SAID)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_client_that_leaves_while_its_model_waits_blocks_no_other() -> None:
    long = {"model": "llama", "prompt": SAID, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with served("llama", "qwen35", "gemma3", most=1) as (url, models):
        for model in models:
            model.open()
        with httpx.stream("POST", f"{url}/v1/completions", json=long, timeout=PATIENCE_S), suppress(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json={"model": "qwen35", "prompt": SAID}, timeout=0.3)
        assert "choices" in ask(url, "gemma3", SAID)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": SAID}),
        ("/v1/embeddings", {"input": SAID}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": SAID}], "max_tokens": 1}),
    ],
)
def test_no_model_is_loaded_for_a_client_that_has_left(path: str, body: dict[str, Any]) -> None:
    with served("llama", "qwen35", most=1) as (url, models), models[0].seat.guest():
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}{path}", json={"model": "qwen35", **body}, timeout=0.3)
        assert until(lambda: models[1].status == "unloaded")
        assert models[1].host is None


def test_models_are_loaded_and_unloaded_as_in_llama_server() -> None:
    with served("llama", "qwen35", most=1) as (url, models), httpx.Client(base_url=url, timeout=PATIENCE_S) as http:

        def states() -> list[str]:
            return [card["status"]["value"] for card in http.get("/models").json()["data"]]

        assert http.post("/models/load", json={"model": "llama"}).status_code == 400, "it is loaded"
        assert http.post("/models/unload", json={"model": "qwen35"}).status_code == 400, "it is not"
        assert http.post("/models/load", json={"model": "qwen35"}).json() == {"success": True}
        assert until(lambda: states() == ["sleeping", "loaded"])
        assert http.post("/models/load", json={"model": "llama"}).json() == {"success": True}
        assert until(lambda: states() == ["loaded", "sleeping"])
        assert http.post("/models/unload", json={"model": "llama"}).json() == {"success": True}
        assert states() == ["sleeping", "sleeping"]
        assert http.post("/models/load", json={"model": "none"}).status_code == 404
        metrics = http.get("/metrics").text
        assert 'leftoff_models{state="sleeping"} 2.0' in metrics
        assert f'leftoff_swaps_total{{model="llama"}} {models[0].seat.swaps.num}.0' in metrics
        assert models[0].seat.swaps.num == 2


def test_tokens_that_a_swap_spares_are_counted(one_awake: tuple[str, list[LateHost]]) -> None:
    url, models = one_awake
    before = models[0].seat.swaps.spared_tokens
    conversations(url, "llama", "qwen35")
    spared = models[0].seat.swaps.spared_tokens
    assert spared > before
    metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    assert f'leftoff_swap_spared_tokens_total{{model="llama"}} {spared}.0' in metrics


def test_ollamas_clients_say_how_long_a_model_stays() -> None:
    with served("llama", "qwen35", most=2) as (url, models), httpx.Client(base_url=url, timeout=PATIENCE_S) as http:

        def running() -> dict[str, str]:
            return {model["name"]: model["expires_at"] for model in http.get("/api/ps").json()["models"]}

        def generate(**more: object) -> httpx.Response:
            return http.post("/api/generate", json={"model": "qwen35", "stream": False} | more)

        assert generate(keep_alive=0).json()["done_reason"] == "unload"
        assert models[1].host is None, "it is not loaded to be unloaded"
        assert generate(keep_alive="1h30m").json()["done_reason"] == "load"
        assert models[1].seat.sleep_after_s == 5400
        assert running()["qwen35:latest"][:4] < "2318" == running()["llama:latest"][:4]
        assert generate(prompt="the road", options={"num_predict": 1}, keep_alive=-1).json()["done"]
        assert running()["qwen35:latest"][:4] == "2318", "each request says it anew"
        assert generate(prompt="the road", options={"num_predict": 1}, keep_alive=0).json()["done"]
        assert until(lambda: "qwen35:latest" not in running())
        woken = generate(prompt="the road", options={"num_predict": 1}).json()
        assert 0 < woken["load_duration"] < woken["total_duration"]
        assert generate(prompt="the road", options={"num_predict": 1}).json()["load_duration"] == 0
        assert models[1].seat.sleep_after_s == math.inf, "after a sleep it is as the server has it"
        assert "keep_alive: is 'soon'" in generate(keep_alive="soon").json()["error"]


def test_no_client_puts_a_pinned_model_to_sleep() -> None:
    with served("llama", "qwen35", most=2, pinned=True) as (url, models):
        host = models[0].open()
        for more in ({}, {"prompt": "the road", "options": {"num_predict": 1}}):
            body = {"model": "llama", "stream": False, "keep_alive": 0, **more}
            httpx.post(f"{url}/api/generate", json=body, timeout=PATIENCE_S).raise_for_status()
            host.call(host.scheduler.tidy).result()
            assert not host.engine.is_asleep
        httpx.post(f"{url}/models/unload", json={"model": "llama"}, timeout=PATIENCE_S).raise_for_status()
        assert until(lambda: host.engine.is_asleep)


def test_what_a_model_has_on_disk_is_deleted_though_it_is_opened_meanwhile(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"most": 2, "disk": 64, "cache_dir": str(tmp_path), "ctx": 2048}

    def num_cached(url: str) -> int:
        return int(ask(url, "qwen35", SAID * 5)["usage"]["prompt_tokens_details"]["cached_tokens"])

    with served("llama", "qwen35", **flags) as (url, _):
        num_cached(url)
    with served("llama", "qwen35", **flags) as (url, models):
        worker = models[0].open()._worker
        assert worker is not None

        def open_the_other() -> None:
            assert until(lambda: bool(worker._calls)), "the deletion waits behind this"
            models[1].open()

        opening = worker.call(open_the_other)
        assert httpx.delete(f"{url}/cache", timeout=PATIENCE_S).json()["freed_bytes"] > 0
        opening.result()
        assert num_cached(url) == 0


def test_what_a_model_has_on_disk_is_deleted_though_nobody_has_asked_it(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"most": 2, "disk": 64, "cache_dir": str(tmp_path), "ctx": 2048, "api_key": ("one", "two")}
    keys = {name: {"Authorization": f"Bearer {name}"} for name in ("one", "two")}

    def num_cached(url: str, model: str, key: str) -> int:
        body = {"model": model, "prompt": SAID * 5, "max_tokens": 4, "temperature": 0}
        reply = httpx.post(f"{url}/v1/completions", json=body, headers=keys[key], timeout=PATIENCE_S).json()
        return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])

    with served("llama", "qwen35", **flags) as (url, _):
        assert [num_cached(url, "qwen35", key) for key in keys] == [0, 0]
    with served("llama", "qwen35", **flags) as (url, late):
        for query, freed in (("?model=llama", False), ("?model=qwen35", True), ("", False)):
            reply = httpx.delete(f"{url}/cache{query}", headers=keys["one"], timeout=PATIENCE_S)
            assert (reply.json()["freed_bytes"] > 0, reply.json()["entries"] > 0) == (freed, freed)
        assert late[1].host is None, "it was not opened for that"
        assert num_cached(url, "qwen35", "one") == 0
        assert num_cached(url, "qwen35", "two") > 0
        with served("llama", "qwen35", **flags) as (other, _):
            refused = httpx.delete(f"{other}/cache?model=qwen35", headers=keys["two"], timeout=PATIENCE_S)
            assert refused.status_code == 503
            assert "is in use by another model of this server" in refused.json()["error"]["message"]
        assert httpx.delete(f"{url}/cache", headers=keys["two"], timeout=PATIENCE_S).json()["freed_bytes"] > 0
    with served("llama", "qwen35", **flags) as (url, late):
        assert num_cached(url, "qwen35", "two") == 0
