"""The page over plain HTTP in a local network, where browsers leave out what they keep for HTTPS."""

from playwright.sync_api import Page, expect

from tests.cli.running import serving
from tests.page.chat import Chat
from tests.page.conftest import LAN_NAME


def test_the_chat_works_from_another_machine(page: Page) -> None:
    with serving("--host", "0.0.0.0", "--predict", "8") as server:
        port = server.url.rpartition(":")[2]
        chat = Chat(page, f"http://{LAN_NAME}:{port}")
        assert not page.evaluate("() => isSecureContext")
        reply = chat.send("where does the road end")
        chat.act(chat.messages.first, "Copy this message")
        expect(chat.messages.first.get_by_text("Copied")).to_be_visible()
        chat.composer.focus()
        page.keyboard.press("Control+v")
        expect(chat.composer).to_have_value("where does the road end")
        page.reload()
        expect(chat.messages).to_have_count(2)
        expect(reply).to_be_visible()
        chat.open("demo")
        page.get_by_role("button", name="Play").click()
        expect(page.locator(".side .ms").first).not_to_be_empty()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Play")).to_be_enabled()
