"""Encoders beside a model: the page has no use for what writes nothing."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Page, expect

from leftoff.host.build import open_host, open_text_encoder
from leftoff.server.hosts import Hosts
from leftoff.server.server import serving
from tests.page.chat import Chat
from tests.server.fixtures import settings


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with (
        open_host(settings("llama", max_tokens=4)) as host,
        closing(open_text_encoder(settings("bert", alias=("embed",)))) as encoder,
        serving(Hosts(host, encoders=[encoder])) as url,
    ):
        yield url


def test_an_encoder_is_not_offered_to_chat_with(chat: Chat, page: Page) -> None:
    chat.send("where does the road end")
    expect(page.locator(".head .model")).to_contain_text("tiny")
    expect(page.get_by_role("combobox", name="Model")).to_have_count(0)
    chat.open("demo")
    expect(page.locator(".step")).to_have_count(9)  # two models take no turns
