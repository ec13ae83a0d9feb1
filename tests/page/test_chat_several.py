"""Several conversations at once: each keeps what was typed, and its reply runs on while another is looked at."""

import httpx
from playwright.sync_api import Page, expect

from leftoff.host.host import ModelHost
from tests.page.chat import Chat
from tests.patience import until


def begin_long(chat: Chat, text: str) -> None:
    chat.set(max_tokens="3000")
    chat.composer.fill(text)
    chat.composer.press("Enter")
    expect(chat.replies.last.locator(".markdown")).not_to_be_empty()


def open_titled(page: Page, title: str) -> None:
    page.locator(".sidebar").get_by_role("button", name=title, exact=True).click()
    expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()


def test_replies_run_on_in_conversations_that_are_not_looked_at(
    chat: Chat, page: Page, http: httpx.Client, host: ModelHost
) -> None:
    begin_long(chat, "tell me everything")
    page.keyboard.press("Alt+n")
    begin_long(chat, "and everything else")
    assert until(lambda: len(host.scheduler.runs) == 2)
    expect(page.locator(".sidebar li.busy")).to_have_count(2)
    page.keyboard.press("Alt+n")
    expect(chat.stop_button).to_have_count(0)
    open_titled(page, "tell me everything")
    before = chat.replies.last.inner_text()
    expect(chat.replies.last).not_to_have_text(before)  # it grows
    page.keyboard.press("Escape")
    expect(chat.finished()).to_contain_text("Stopped.")
    expect(page.locator(".sidebar li.busy")).to_have_count(1)
    chat.open("cache")
    chat.open("chat")
    open_titled(page, "and everything else")
    expect(chat.stop_button).to_be_visible()
    page.keyboard.press("Escape")
    expect(chat.finished()).to_contain_text("Stopped.")
    assert http.get("/health").status_code == 200
    kept = chat.kept()
    assert [message["state"] for message in kept if message["role"] == "assistant"] == ["cut", "cut"]
    assert len({message["conversation"] for message in kept}) == 2


def test_escape_in_a_field_stops_no_reply(chat: Chat, page: Page) -> None:
    begin_long(chat, "tell me everything")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").press("Escape")
    expect(page.get_by_label("Title")).to_have_count(0)
    chat.act(chat.messages.first, "Edit")
    page.locator(".editor textarea").press("Escape")
    expect(page.locator(".editor")).to_have_count(0)
    before = chat.replies.last.inner_text()
    expect(chat.replies.last).not_to_have_text(before)
    expect(chat.stop_button).to_be_visible()
    page.keyboard.press("Escape")
    expect(chat.finished()).to_contain_text("Stopped.")


def test_a_conversation_that_is_deleted_while_it_is_written_stays_deleted(chat: Chat, page: Page) -> None:
    begin_long(chat, "tell me everything")
    page.keyboard.press("Alt+n")
    chat.delete("tell me everything")
    expect(page.locator(".sidebar .title")).to_have_count(0)
    chat.set(max_tokens="8")
    chat.send("only a map")
    expect(page.locator(".sidebar .title")).to_have_count(1)
    assert len(chat.kept()) == 2


def test_a_new_conversation_takes_over_how_to_sample_and_no_schema_or_tools(chat: Chat, page: Page) -> None:
    chat.set(temperature="0.5", max_tokens="8", schema='{"enum": ["north", "south"]}', tools="[]")
    chat.send("where does the road end")
    page.keyboard.press("Alt+n")
    for name, value in {"temperature": "0.5", "schema": "", "tools": ""}.items():
        expect(page.locator(f'dialog.settings [name="{name}"]')).to_have_value(value)


def test_what_is_not_sent_stays_with_its_conversation(chat: Chat, page: Page) -> None:
    chat.send("where does the road end")
    chat.composer.fill("half a thought")
    page.keyboard.press("Alt+n")
    expect(chat.composer).to_have_value("")
    chat.composer.fill("a new thought")
    open_titled(page, "where does the road end")
    expect(chat.composer).to_have_value("half a thought")
    page.get_by_role("link", name="Cache").click()
    page.get_by_role("link", name="Chat").click()
    expect(chat.composer).to_have_value("half a thought")
    page.reload()
    expect(chat.composer).to_have_value("half a thought")
    page.keyboard.press("Alt+n")
    expect(chat.composer).to_have_value("a new thought")
    chat.composer.press("Enter")
    chat.finished()
    expect(chat.composer).to_have_value("")
    page.keyboard.press("Alt+n")
    expect(chat.composer).to_have_value("")
