"""An agent that looks at a screenshot in every turn, in each dialect: no old one is decoded, encoded or read again."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from lab.bench.account import Account
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.scheduler.run import Run
from leftoff.server.reply.stream import ReplyStream
from leftoff.server.server import serving
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S
from tests.pictures import noise
from tests.server.fixtures import settings

NUM_TURNS = 20
ALLOWED = 1.01  # times what no server could have avoided to read
WIDTH = 64  # of the model
Turns = list[dict[str, Any]]


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(mmproj=str(projector_path("qwen3vl_merger", WIDTH)), max_tokens=4)) as host:
        yield host


@pytest.fixture(scope="module")
def http(host: ModelHost) -> Iterator[httpx.Client]:
    with serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        yield client


def shot(number: int) -> str:
    return base64.b64encode(noise(number)).decode()


def _chat(turns: Turns, number: int) -> tuple[str, dict[str, Any], Callable[[Any], Turns]]:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shot(number)}"}}
    asked = [*turns, {"role": "user", "content": [{"type": "text", "text": f"look {number}"}, image]}]
    return "/v1/chat/completions", {"messages": asked}, lambda reply: [*asked, reply["choices"][0]["message"]]


def _messages(turns: Turns, number: int) -> tuple[str, dict[str, Any], Callable[[Any], Turns]]:
    """As Claude Code reads a picture: with a tool, whose result has it."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"{number}.png"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": shot(number)}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [image]}
    begun = turns or [{"role": "user", "content": "read the pictures"}]
    asked = [*begun, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"messages": asked, "max_tokens": 4, "tools": [{"name": "Read", "input_schema": {"type": "object"}}]}
    return "/v1/messages", body, lambda reply: [*asked, {"role": "assistant", "content": reply["content"]}]


def _responses(turns: Turns, number: int) -> tuple[str, dict[str, Any], Callable[[Any], Turns]]:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{shot(number)}"}
    asked = [*turns, {"role": "user", "content": [{"type": "input_text", "text": f"watch {number}"}, image]}]
    return "/v1/responses", {"input": asked, "store": False}, lambda reply: [*asked, *reply["output"]]


def _ollama(turns: Turns, number: int) -> tuple[str, dict[str, Any], Callable[[Any], Turns]]:
    asked = [*turns, {"role": "user", "content": f"view {number}", "images": [shot(number)]}]
    return "/api/chat", {"messages": asked, "stream": False}, lambda reply: [*asked, reply["message"]]


@pytest.mark.parametrize(("first", "ask"), [*enumerate((_chat, _messages, _responses, _ollama))])
def test_old_pictures_cost_next_to_nothing(
    host: ModelHost,
    http: httpx.Client,
    first: int,
    ask: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert host.prompts.encoder is not None
    turns: Turns = []
    runs: list[Run] = []
    submit, account, num_computed = host.scheduler.submit, Account(), 0

    def seen(run: Run) -> None:
        runs.append(run)
        submit(run)

    monkeypatch.setattr(host.scheduler, "submit", seen)
    for number in range(100 * first, 100 * first + NUM_TURNS):
        before = host.pictures.num_decoded, host.prompts.encoder.num_encoded
        path, body, go_on = ask(turns, number)
        answer = http.post(path, json={"model": "tiny", **body})
        assert answer.status_code == 200, answer.text
        turns = go_on(answer.json())
        assert (host.pictures.num_decoded, host.prompts.encoder.num_encoded) == (before[0] + 1, before[1] + 1)
        report = http.get("/cache/requests").json()["requests"][0]
        assert [line.endswith("reused") for line in report["images"]] == [True] * (number % 100) + [False]
        assert report["reasons"].keys() <= {"new"} or number % 100 == 0
        (run,) = runs
        runs.clear()
        assert isinstance(run.sink, ReplyStream)
        account.ask(run.prompt.tokens)
        read = [piece.token for piece in run.sink.pieces[:-1]]  # the last was chosen, and no more
        account.show(run.prompt.tokens, np.array(read, np.int32))
        num_computed += report["computed"]
    assert num_computed <= ALLOWED * account.unavoidable


def test_a_raw_prompt_shows_pictures_and_clients_are_told_so(http: httpx.Client) -> None:
    prompt = {"prompt_string": "A <__media__> and <__media__>", "multimodal_data": [shot(901), shot(901)]}
    answer = http.post("/completion", json={"prompt": prompt, "n_predict": 2}).json()
    assert answer["tokens_evaluated"] > 2 * 9
    assert http.get("/props").json()["modalities"]["vision"] is True
    assert http.get("/v1/models").json()["data"][0]["meta"]["vision"] is True
    assert "vision" in http.post("/api/show", json={"model": "tiny"}).json()["capabilities"]
