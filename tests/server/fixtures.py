"""Fixtures: a real server on a free port, and OpenAI's own client in front of it."""

from collections.abc import Iterator
from dataclasses import replace

import httpx
import openai
import pytest

from leftoff.cache.costs import TierCosts
from leftoff.chat.chat import ChatPrompt
from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import PromptMaker
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.factory import model_path
from tests.patience import PATIENCE_S
from tests.server.clock import Clock, stopped_clock

CONTEXT_TOKENS = 4096


def settings(architecture: str = "qwen35", **changes: object) -> Settings:
    """One thread: the tests themselves run in parallel."""
    values = {
        "alias": ("tiny",),
        "ctx": CONTEXT_TOKENS,
        "threads": 1,
        "slots": 4,
        "ram": 64,
        "disk": 0,
        "draft": "off",
    } | changes
    return Settings(**({"model": str(model_path(architecture))} | values))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings()) as host:
        yield host


@pytest.fixture(scope="module")
def url(host: ModelHost) -> Iterator[str]:
    with serving(host) as url:
        yield url


@pytest.fixture
def http(host: ModelHost, url: str) -> Iterator[httpx.Client]:
    """A plain client, and a cache that holds nothing."""
    host.call(host.cache.clear).result()
    host.log.forget()
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture
def client(http: httpx.Client, url: str) -> Iterator[openai.OpenAI]:
    assert http.get("/health").json()["status"] == "ok"
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def seen(host: ModelHost, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Conversation]]:
    """The conversations that reach the chat layer of a host that says it sees pictures. None is known before."""
    conversations: list[Conversation] = []
    made = host.chats.prompt

    def watched(conversation: Conversation) -> ChatPrompt:
        conversations.append(conversation)
        return made(replace(conversation, pictures={}))  # the markers are text then

    monkeypatch.setattr(PromptMaker, "sees_pictures", True)
    monkeypatch.setattr(host.chats, "prompt", watched)
    http.delete("/cache")
    yield conversations
    http.delete("/cache")


@pytest.fixture
def quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate stays what is assumed at the start: where others keep it busy, a short prompt is read again sooner."""
    monkeypatch.setattr(TierCosts, "expect", lambda *_: None)
    monkeypatch.setattr(TierCosts, "saw_fetch", lambda *_: None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stopped_clock(monkeypatch)


@pytest.fixture
def own_url(host: ModelHost, clock: Clock) -> Iterator[str]:
    """Of a server that lives by the test's clock."""
    assert clock.now == 0
    with serving(host) as url:
        yield url
