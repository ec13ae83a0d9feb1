"""Ollama's dialect, as its own client sees it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.seats import Seats
from leftoff.server.hosts import Hosts
from leftoff.server.ollama.convert import messages_as_chat
from leftoff.server.ollama.types import Call, Function, OllamaChatRequest, OllamaMessage
from leftoff.server.server import serving
from tests.factory import model_path
from tests.server.fixtures import CONTEXT_TOKENS, settings

MESSAGES = [
    {"role": "system", "content": "you keep a lamp in the window"},
    {"role": "user", "content": "tell me the best story " * 20},
]
COLD = {"temperature": 0, "num_predict": 12}


@pytest.fixture
def llama(http: httpx.Client, url: str) -> Iterator[ollama.Client]:
    assert http.get("/api/version").json()["version"]
    client = ollama.Client(host=url)
    yield client
    client.close()  # type: ignore[no-untyped-call]


def test_a_chat_is_answered(llama: ollama.Client, http: httpx.Client) -> None:
    reply = llama.chat("tiny", MESSAGES, options=COLD)
    assert (reply.model, reply.done, reply.done_reason) == ("tiny:latest", True, "length")
    assert reply.message.role == "assistant"
    assert len((reply.message.content or "").split()) == reply.eval_count == 12
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12}
    same = http.post("/v1/chat/completions", json=body).json()
    assert same["choices"][0]["message"]["content"] == reply.message.content
    assert same["usage"]["prompt_tokens"] == reply.prompt_eval_count


def test_a_stream_says_the_same(llama: ollama.Client) -> None:
    reply = llama.chat("tiny", MESSAGES, options=COLD)
    chunks = [*llama.chat("tiny", MESSAGES, options=COLD, stream=True)]
    assert "".join(chunk.message.content or "" for chunk in chunks) == reply.message.content
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks) == 13, "one for each token, and how it ended"
    assert (chunks[-1].done_reason, chunks[-1].eval_count) == ("length", 12)


def test_times_are_nanoseconds(llama: ollama.Client) -> None:
    reply = llama.chat("tiny", MESSAGES, options=COLD)
    assert reply.total_duration is not None
    assert reply.prompt_eval_duration is not None
    assert reply.eval_duration is not None
    assert 1_000 < reply.prompt_eval_duration + reply.eval_duration <= reply.total_duration < 60 * 10**9


def test_it_streams_unless_told_not_to(http: httpx.Client) -> None:
    reply = http.post("/api/chat", json={"model": "tiny", "messages": MESSAGES, "options": COLD})
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["done"] for line in reply.text.splitlines()] == [False] * 12 + [True]


def test_a_prompt_is_a_chat_of_one_message(llama: ollama.Client) -> None:
    chat = llama.chat("tiny", MESSAGES, options=COLD)
    system, prompt = (message["content"] for message in MESSAGES)
    reply = llama.generate("tiny", prompt, system=system, options=COLD)
    assert reply.response == chat.message.content
    chunks = [*llama.generate("tiny", prompt, system=system, options=COLD, stream=True)]
    assert "".join(chunk.response or "" for chunk in chunks) == reply.response


def test_a_raw_prompt_has_no_template(llama: ollama.Client, http: httpx.Client) -> None:
    reply = llama.generate("tiny", "the river runs", raw=True, options=COLD)
    same = http.post("/completion", json={"prompt": "the river runs", "n_predict": 12, "temperature": 0}).json()
    assert (reply.response, reply.prompt_eval_count) == (same["content"], same["tokens_evaluated"])


def test_options_reach_the_sampler(llama: ollama.Client) -> None:
    def say(**options: Any) -> str:  # noqa: ANN401
        return llama.chat("tiny", MESSAGES, options={"num_predict": 8, **options}).message.content or ""

    assert say(seed=1, temperature=2.0) == say(seed=1, temperature=2.0) != say(seed=2, temperature=2.0)
    text = say(temperature=0)
    stop = text.split()[3]
    assert say(temperature=0, stop=[stop], num_ctx=2048) == text[: text.index(stop)]


def test_calls_without_ids_are_named_in_order() -> None:
    calls = [Call(Function("find_ship", {"sea": sea})) for sea in (1, 2)]
    replied = [OllamaMessage("assistant", tool_calls=calls), *(OllamaMessage("tool", text) for text in ("far", "near"))]
    reply, *results = messages_as_chat(OllamaChatRequest(messages=replied)).messages
    ids = [call.id for call in reply.tool_calls or ()]
    assert [result.tool_call_id for result in results] == ids
    assert len({*ids}) == 2


def test_who_asks_for_nothing_has_the_model_loaded(llama: ollama.Client) -> None:
    assert llama.chat("tiny", []).done_reason == "load"
    assert llama.generate("tiny", "", keep_alive=-1).done_reason == "load"


@pytest.mark.parametrize("keep_alive", [0, "0", "0s"])
def test_who_wants_to_be_rid_of_the_model_is_told_so(llama: ollama.Client, keep_alive: float | str) -> None:
    assert llama.chat("tiny", [], keep_alive=keep_alive).done_reason == "unload"
    assert llama.generate("tiny", "", keep_alive=keep_alive).done_reason == "unload"
    assert llama.generate("tiny", "the river", options=COLD, keep_alive=keep_alive).done_reason == "length"


def test_a_call_without_arguments_has_none(http: httpx.Client) -> None:
    calls = [{"function": {"name": "find_ship"}}]
    messages = [*MESSAGES, {"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": "far"}]
    assert http.post("/api/chat", json={"messages": messages, "options": COLD}).status_code == 200


def test_the_model_is_described(llama: ollama.Client, host: ModelHost) -> None:
    (model,) = llama.list().models
    assert model.model == "tiny:latest"
    assert model.size == host.model.size_bytes
    assert model.details is not None
    assert model.details.family == "qwen35"
    (running,) = llama.ps().models
    assert (running.model, running.context_length) == ("tiny:latest", CONTEXT_TOKENS)
    for name in ("tiny", "tiny:latest", "any that a client was told"):
        shown = llama.show(name)
        assert (shown.modelinfo or {})["qwen35.context_length"] == CONTEXT_TOKENS
        assert {"completion", "tools"} <= {*(shown.capabilities or ())}


def test_a_model_whose_file_is_deleted_while_it_is_open_is_described(tmp_path: Path) -> None:
    path = Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    with open_host(settings(model=str(path))) as host, serving(host) as url, httpx.Client(base_url=url) as http:
        path.unlink()
        (listed,) = http.get("/api/tags").json()["models"]
        assert (listed["model"], listed["size"]) == ("tiny:latest", host.model.size_bytes)
        assert http.get("/api/ps").json()["models"][0]["model"] == "tiny:latest"
        assert "completion" in http.post("/api/show", json={"model": "tiny"}).json()["capabilities"]


def test_models_of_one_file_are_described_each_by_its_own_settings(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    first, plain, own = (
        LateHost(name, Seats().add(), None, settings=settings(alias=(name,), **changes))
        for name, changes in (("first", {}), ("plain", {"ctx": 512}), ("own", {"chat_template_file": str(template)}))
    )
    with open_host(first.settings) as first.host, serving(Hosts(first, [plain, own])) as url:
        shown = [httpx.post(f"{url}/api/show", json={"model": name}).json() for name in ("plain", "own")]
    assert shown[1]["template"] == template.read_text() != shown[0]["template"]
    assert [each["model_info"]["qwen35.context_length"] for each in shown] == [512, CONTEXT_TOKENS]


@pytest.mark.parametrize("thinks", [False, True])
def test_a_model_thinks_if_its_template_knows_of_it(thinks: bool, tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}" + "<think>" * thinks
    (tmp_path / "template.jinja").write_text(template)
    with open_host(settings(chat_template_file=str(tmp_path / "template.jinja"))) as host, serving(host) as url:
        shown = httpx.post(f"{url}/api/show", json={"model": "tiny"}).json()
    assert ("thinking" in shown["capabilities"]) is thinks


def test_errors_are_a_text(llama: ollama.Client, http: httpx.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="pull") as refused:
        llama.pull("other")
    assert refused.value.status_code == 404
    assert [*http.post("/api/pull", json={"model": "other"}).json()] == ["error"]


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/api/chat", {"messages": MESSAGES, "format": "yaml"}, "format"),
        ("/api/chat", {"messages": MESSAGES, "options": {"temperature": -1}}, "options.temperature"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("/api/generate", {"prompt": "a", "system": "b", "raw": True}, "system: is not shown with raw"),
    ],
)
def test_bad_input_is_refused_by_its_field(http: httpx.Client, path: str, fields: Any, message: str) -> None:  # noqa: ANN401
    reply = http.post(path, json={"model": "tiny", **fields})
    assert reply.status_code == 400
    assert message in reply.json()["error"]


@pytest.mark.parametrize("is_raw", [False, True])
def test_an_image_becomes_a_note(http: httpx.Client, is_raw: bool) -> None:
    fields = {"raw": is_raw, "stream": False, "options": {"num_predict": 1}}
    noted = http.post("/api/generate", json={"prompt": "look", "images": ["aGVsbG8="], **fields}).json()
    same = http.post("/api/generate", json={"prompt": "[image left out: this model reads text only]look", **fields})
    assert noted["prompt_eval_count"] == same.json()["prompt_eval_count"]
    message = {"role": "user", "content": "look", "images": ["aGVsbG8="]}
    chat = http.post("/api/chat", json={"messages": [message], **fields}).json()
    assert is_raw or chat["prompt_eval_count"] == noted["prompt_eval_count"]
