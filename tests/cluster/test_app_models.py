"""A fleet whose servers have different models: a request goes where its model is, and rather where it is awake."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import httpx
import pytest

from tests.cluster.here import Part, replica, router
from tests.cluster.test_proxy import known
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.store.parts import Redis

MODELS = {"first": "llama", "left": "qwen35", "right": "gemma3"}
SERVERS = (("first", "left"), ("first", "right"))
SAID = "The road goes up the hill and down to the harbour, where the boats lie. " * 6


@pytest.fixture(scope="module")
def servers(index: Redis) -> Iterator[list[Part]]:
    """Each has room for one of its two models."""
    with ExitStack() as stack:
        parts = []
        for names in SERVERS:
            models = [f"{name}={model_path(MODELS[name])}" for name in names]
            parts.append(replica("--models-max", "1", "--index", index.url, models=models))
            stack.callback(parts[-1].close)
        yield parts


@pytest.fixture(scope="module", params=["index", "urls"])
def fleet(request: pytest.FixtureRequest, index: Redis, servers: list[Part]) -> Iterator[tuple[Part, list[Part]]]:
    """A router that follows the index, or asks the servers."""
    urls = [server.url for server in servers]
    with closing(router(index.url) if request.param == "index" else router(replicas=urls)) as route:
        assert until(lambda: len(known(route)) == 4)
        yield route, servers


@pytest.fixture
def http(fleet: tuple[Part, list[Part]]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fleet[0].url, timeout=PATIENCE_S) as client:
        yield client


def ask(http: httpx.Client, model: str | None, prompt: str = SAID) -> httpx.Response:
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
    return http.post("/v1/completions", json=body | ({"model": model} if model else {}))


def url_of(http: httpx.Client, answer: httpx.Response) -> str:
    groups = http.get("/cluster").json()["groups"]
    urls = {each["id"]: each["url"] for group in groups for each in group["replicas"]}
    return str(urls[answer.headers["x-leftoff-replica"]])


def awake(fleet: tuple[Part, list[Part]]) -> set[tuple[int, str]]:
    """The server and the name of each model that is awake, as the router knows it."""
    route, servers = fleet
    numbers = {server.url: number for number, server in enumerate(servers)}
    return {
        (numbers[str(each["url"])], str(each["model"]))
        for each in known(route)
        if each["readiness"]["is_awake"]  # type: ignore[index]
    }


def test_models_that_nobody_has_asked_are_known_too(fleet: tuple[Part, list[Part]]) -> None:
    assert {(str(each["url"]), str(each["model"])) for each in known(fleet[0])} == {
        (server.url, name) for server, names in zip(fleet[1], SERVERS, strict=True) for name in names
    }
    assert until(lambda: {number for number, _ in awake(fleet)} == {0, 1})


def test_a_request_goes_where_its_model_is_and_rather_where_it_is_awake(
    http: httpx.Client, fleet: tuple[Part, list[Part]]
) -> None:
    _, servers = fleet
    for number, name in ((0, "left"), (1, "right"), (0, "left")):
        answer = ask(http, name)
        assert (answer.json()["model"], url_of(http, answer)) == (name, servers[number].url)
    with httpx.Client(base_url=servers[1].url, timeout=PATIENCE_S) as right:
        ask(right, "first")
    assert until(lambda: awake(fleet) == {(0, "left"), (1, "first")})
    for turn in range(4):
        answer = ask(http, "first", f"{turn} {SAID}")
        assert url_of(http, answer) == servers[1].url, "the other server, idle as it is, would have to load it"


def test_a_name_that_no_server_has_is_told_with_those_of_all_and_without_one_the_first_answers(
    http: httpx.Client,
) -> None:
    refused = ask(http, "other")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert (
        "there is no model 'other' in this fleet: name one of first, left, right" in refused.json()["error"]["message"]
    )
    assert ask(http, None).json()["model"] == "first"


def test_lists_are_those_of_all_with_what_is_loaded_anywhere(
    http: httpx.Client, fleet: tuple[Part, list[Part]]
) -> None:
    ask(http, "left")
    assert until(lambda: (0, "left") in awake(fleet))
    cards = {card["id"]: card["status"]["value"] for card in http.get("/v1/models").json()["data"]}
    assert {*cards} == {*MODELS}
    assert cards["left"] == "loaded"
    assert {model["name"] for model in http.get("/api/tags").json()["models"]} == {f"{name}:latest" for name in MODELS}
    running = {model["name"] for model in http.get("/api/ps").json()["models"]}
    assert "left:latest" in running
    assert len(running) <= len(SERVERS)
    assert http.get("/props?model=right").json()["model_alias"] == "right"


def test_what_is_deleted_is_deleted_from_all_models(http: httpx.Client) -> None:
    for name in MODELS:
        ask(http, name)
    told = http.delete("/cache").json()
    assert len(told["replicas"]) == len(SERVERS), "a server is asked once for all its models"
    assert told["freed_bytes"] > 0
    for name in MODELS:
        usage = ask(http, name).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
