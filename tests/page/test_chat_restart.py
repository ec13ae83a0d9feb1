"""A server that goes away while it writes: nothing that was finished is lost, and the chat goes on."""

import signal

import httpx
from playwright.sync_api import Page, expect

from tests.cli.running import serving
from tests.page.chat import Chat


def test_a_killed_server_loses_no_finished_message(page: Page) -> None:
    with serving("--predict", "8") as server:
        chat = Chat(page, server.url)
        finished = chat.send("where does the road end").inner_text()
        chat.set(max_tokens="900")
        chat.composer.fill("tell me everything")
        chat.composer.press("Enter")
        expect(chat.messages).to_have_count(4)
        expect(chat.replies.last.locator(".markdown")).not_to_be_empty()
        server.stop(signal.SIGKILL)
        expect(chat.replies.last.get_by_role("alert")).to_be_visible()
    part = chat.kept()[-1]
    assert part["state"] == "cut"
    assert part["content"]
    with serving("--predict", "8", "--port", str(httpx.URL(server.url).port)):
        page.reload()
        expect(chat.messages).to_have_count(4)
        assert chat.replies.first.inner_text() == finished
        assert chat.kept()[-1]["content"] == part["content"]
        chat.set(max_tokens="8")
        chat.act(chat.replies.last, "Continue")
        chat.finished()
    assert chat.kept()[-1]["content"].startswith(part["content"])
