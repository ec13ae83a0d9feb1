"""Conversations with adapters: each is remembered, read ahead and reused with its own, and with no other."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.behaviour.adapters import adapter_files
from tests.factory import model_path
from tests.factory.adapters import lora_path
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

MODEL = "qwen35"
MESSAGES = [
    {"role": "system", "content": "you know the way to the harbour " * 12},
    {"role": "user", "content": "where does the road end"},
]


def alora(host: ModelHost, text: str) -> str:
    """An aLoRA that is invoked by a text, as the flag has it."""
    tokens = host.model.vocabulary.tokenize(text, add_special=False, parse_special=True).tolist()
    return f"judge={lora_path(model_path(MODEL), 5, tokens)}"


@pytest.fixture(scope="module")
def served() -> Iterator[httpx.Client]:
    with open_host(settings(MODEL)) as host:
        judge = alora(host, "is that right and true")
    files = adapter_files(model_path(MODEL))
    own = settings(MODEL, lora=(files["a"], judge), max_tokens=12)
    with open_host(own) as host, serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture
def http(served: httpx.Client) -> httpx.Client:
    served.delete("/cache").raise_for_status()
    return served


def chat(http: httpx.Client, model: str, messages: list[dict[str, str]]) -> tuple[str, int, int]:
    """The reply, the tokens of the prompt, and how many of them were reused."""
    body: dict[str, Any] = {"model": model, "messages": messages, "temperature": 0}
    answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    usage = answer["usage"]
    reused = usage["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"][0]["message"]["content"] or "", usage["prompt_tokens"], reused


def test_a_conversation_with_an_adapter_goes_on_from_where_it_was(http: httpx.Client) -> None:
    first, num_first, _ = chat(http, "tiny:a", MESSAGES)
    more = [*MESSAGES, {"role": "assistant", "content": first}, {"role": "user", "content": "and then"}]
    _, _, reused = chat(http, "tiny:a", more)
    assert reused >= num_first - 8  # all but what the template writes before a reply
    _, _, of_base = chat(http, "tiny", more)
    assert of_base == 0


def test_an_alora_judges_what_the_model_has_read_and_written(http: httpx.Client) -> None:
    """The prompt of the model is not read again for the adapter, nor that of the adapter for the model."""
    first, num_first, _ = chat(http, "tiny", MESSAGES)
    said = [*MESSAGES, {"role": "assistant", "content": first}]
    _, _, judged = chat(http, "tiny:judge", [*said, {"role": "user", "content": "is that right and true"}])
    assert judged >= num_first - 8
    _, _, went_on = chat(http, "tiny", [*said, {"role": "user", "content": "and then"}])
    assert went_on >= num_first - 8
    assert all("/lora:" not in tree["namespace"] for tree in http.get("/cache").json()["trees"])
