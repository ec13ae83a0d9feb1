"""Adapters on the page: models one can choose, like any other."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.behaviour.adapters import adapter_files
from tests.factory import model_path
from tests.page.chat import Chat
from tests.server.fixtures import settings


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    files = adapter_files(model_path("llama"))
    own = settings("llama", lora=(files["a"], files["b"]), max_tokens=4, read_ahead=False)
    with open_host(own) as host, serving(host) as url:
        yield url


def test_an_adapter_is_chosen_and_says_that_it_wrote(chat: Chat, page: Page) -> None:
    choice = page.get_by_role("combobox", name="Model")
    expect(choice.locator("option")).to_have_count(3)
    chat.send("where does the road end")
    choice.select_option("tiny:b")
    chat.send("only a map")
    expect(chat.replies.locator(".role")).to_have_text(["tiny", "tiny:b"])
