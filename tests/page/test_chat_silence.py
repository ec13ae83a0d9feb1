"""A server that is busy for long sends nothing but signs of life: the page waits."""

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from leftoff.host.host import ModelHost
from leftoff.server.reply.response import EventStream
from tests.page.chat import Chat


@pytest.fixture
def held(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The engine does nothing until the event is set, and clients that wait get a sign of life every moment."""
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    may_go_on = threading.Event()
    host.call(may_go_on.wait)
    yield may_go_on
    may_go_on.set()


def test_a_reply_that_is_waited_for_comes(chat: Chat, page: Page, held: threading.Event) -> None:
    with page.expect_response("**/v1/chat/completions") as answer:
        chat.composer.fill("where does the road end")
        chat.composer.press("Enter")
    assert answer.value.ok
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 200))")  # of silence
    expect(chat.replies.last).to_contain_text("Waiting…")
    held.set()
    expect(chat.finished().get_by_role("alert")).to_have_count(0)
