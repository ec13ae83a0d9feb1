"""The chat as a person uses it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect


@dataclass
class Chat:
    """One page that is open on the chat of a server."""

    page: Page
    url: str

    def __post_init__(self) -> None:
        self.open()

    def open(self, view: str = "chat") -> None:
        self.page.goto(f"{self.url}/#{view}")
        expect(self.page.get_by_role("link", name="Chat", exact=True)).to_be_visible()
        if view == "chat":
            expect(self.composer).to_be_visible()

    @property
    def composer(self) -> Locator:
        return self.page.locator("#composer")

    @property
    def messages(self) -> Locator:
        return self.page.locator(".message:not(.system)")

    @property
    def replies(self) -> Locator:
        return self.page.locator(".message.assistant")

    @property
    def stop_button(self) -> Locator:
        return self.page.get_by_role("button", name="Stop", exact=True)

    def send(self, text: str) -> Locator:
        """The reply, once it is complete."""
        num_messages = self.messages.count()
        self.composer.fill(text)
        self.composer.press("Enter")
        expect(self.messages).to_have_count(num_messages + 2)
        return self.finished()

    def finished(self) -> Locator:
        """The last message, once nothing is being written and its report has come."""
        expect(self.replies.last.locator(".origins")).to_be_visible()
        expect(self.stop_button).to_have_count(0)
        return self.replies.last

    def act(self, message: Locator, name: str) -> None:
        """Presses a button of a message."""
        message.hover()
        message.get_by_role("button", name=name, exact=True).click()

    def edit(self, index: int, text: str) -> Locator:
        """Sends a message of the user anew; the reply to it, once it is complete."""
        self.act(self.messages.nth(index), "Edit")
        editor = self.page.locator(".editor textarea")
        expect(editor).to_be_focused()
        editor.fill(text)
        editor.press("Control+Enter")
        expect(self.messages.nth(index)).to_contain_text(text)
        expect(self.messages).to_have_count(index + 2)
        return self.finished()

    def set(self, **settings: str) -> None:
        """Types into the settings of the conversation."""
        self.page.get_by_role("button", name="Settings").click()
        for name, value in settings.items():
            field = self.page.locator(f'dialog.settings [name="{name}"]')
            if name == "thinking":
                field.select_option(value)
            else:
                field.fill(value)
        self.page.get_by_role("button", name="Close").click()

    def origins(self, reply: Locator) -> list[dict[str, int]]:
        """What each message shows while the pointer is on the bar of a reply, from the first to the last."""
        reply.locator(".origins").hover()
        told = self.page.locator(".told[data-origins]")
        return [json.loads(each.get_attribute("data-origins") or "{}") for each in told.all()]

    def bar(self, reply: Locator) -> dict[str, int]:
        """The parts of a reply's bar in tokens, by their colour."""
        parts = reply.locator(".origins .part").all()
        return {
            (each.get_attribute("class") or "").split()[1]: int(each.get_attribute("data-tokens") or 0)
            for each in parts
        }

    def delete(self, title: str) -> None:
        """Deletes a conversation."""
        entry = self.page.locator(".sidebar li", has_text=title).first
        entry.hover()
        entry.get_by_role("button", name=f"Delete {title}").click()
        self.agree("Delete")

    def agree(self, name: str) -> None:
        """Answers the question that the page asks before it deletes something."""
        question = self.page.get_by_role("dialog", name="Are you sure?")
        question.get_by_role("button", name=name, exact=True).click()
        expect(question).to_have_count(0)

    def take_in(self, file: Path) -> None:
        """Imports conversations."""
        self.page.get_by_label("Conversations to import").set_input_files([file])

    def kept(self) -> list[dict[str, Any]]:
        """The messages in the browser's database, from the oldest to the newest."""
        found: list[dict[str, Any]] = self.page.evaluate(
            """() => new Promise((resolve) => {
                const request = indexedDB.open("leftoff", 1);
                request.onsuccess = () => {
                    const all = request.result.transaction("messages").objectStore("messages").getAll();
                    all.onsuccess = () => { request.result.close(); resolve(all.result); };
                };
            })"""
        )
        return sorted(found, key=lambda message: message["created"])
