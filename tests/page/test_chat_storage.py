"""The browser may have no room for conversations, or keep none at all: the page says so, and loses nothing before."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.page.chat import Chat

NOTICE = "This browser has no room left: 1 conversation will be lost when this page is closed."
# As browsers do it: the transaction ends by itself, with this error. That their disks are full cannot be had in a test.
FULL = """() => {
    const put = IDBObjectStore.prototype.put;
    window.makeRoom = () => { IDBObjectStore.prototype.put = put; };
    IDBObjectStore.prototype.put = function (...given) {
        const error = { value: new DOMException("", "QuotaExceededError") };
        const request = put.apply(this, given);
        if (!Object.hasOwn(this.transaction, "error")) {
            Object.defineProperty(this.transaction, "error", error);
            queueMicrotask(() => this.transaction.abort());
        }
        return request;
    };
}"""
NO_DATABASE = "indexedDB.open = () => { throw new Error('it is turned off'); }"
NO_REASON = "indexedDB.open = () => { throw new DOMException('', 'SecurityError'); }"


def titles(page: Page) -> list[str]:
    return page.locator(".sidebar .title").all_inner_texts()


def test_a_full_browser_is_told_of_and_what_was_said_stays_until_there_is_room(
    chat: Chat, page: Page, tmp_path: Path
) -> None:
    chat.send("where does the road end")
    page.evaluate(FULL)
    page.keyboard.press("Alt+n")
    chat.send("only a map")
    expect(page.get_by_role("alert")).to_contain_text(NOTICE)
    assert titles(page) == ["only a map", "where does the road end"]
    page.get_by_role("button", name="where does the road end", exact=True).click()
    expect(chat.messages.first).to_contain_text("where does the road end")
    page.get_by_role("button", name="only a map", exact=True).click()
    expect(chat.messages.first).to_contain_text("only a map")
    reply = chat.replies.first.locator(".markdown").inner_text()
    page.get_by_label("Search conversations").fill(reply)
    expect(page.locator(".sidebar .title")).to_have_text(["only a map"])
    page.get_by_label("Search conversations").fill("")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    download.value.save_as(tmp_path / "map.json")
    (exported,) = json.loads((tmp_path / "map.json").read_text())["conversations"]
    assert exported["messages"][0]["content"] == "only a map"
    chat.take_in(tmp_path / "map.json")
    expect(page.get_by_text("map.json cannot be imported: This browser has no room left")).to_be_visible()
    page.evaluate("() => window.makeRoom()")
    chat.delete("where does the road end")
    expect(page.get_by_text(NOTICE)).to_have_count(0)
    page.reload()
    expect(chat.messages).to_have_count(2)
    assert titles(page) == ["only a map"]


def test_a_browser_that_keeps_nothing_can_be_used(page: Page, url: str) -> None:
    page.add_init_script(NO_DATABASE)
    chat = Chat(page, url)
    chat.send("where does the road end")
    chat.send("only a map")
    expect(page.get_by_role("alert")).to_contain_text("This browser keeps nothing (it is turned off): 1 conversation")
    expect(chat.messages).to_have_count(4)


def test_a_browser_that_keeps_nothing_searches_and_deletes_what_is_here(page: Page, url: str) -> None:
    page.add_init_script(NO_DATABASE)
    chat = Chat(page, url)
    for text in ("where is the xylophone", "only a map"):
        page.keyboard.press("Alt+n")
        chat.send(text)
    page.get_by_label("Search conversations").fill("XYLO")  # no word that a random reply may have
    expect(page.locator(".sidebar .title")).to_have_text(["where is the xylophone"])
    page.get_by_label("Search conversations").fill("")
    expect(page.locator(".sidebar .title")).to_have_count(2)
    chat.delete("where is the xylophone")
    expect(page.locator(".sidebar .title")).to_have_text(["only a map"])


def test_an_error_without_words_is_named_by_its_type(page: Page, url: str) -> None:
    page.add_init_script(NO_REASON)
    Chat(page, url).send("where does the road end")
    expect(page.get_by_role("alert")).to_contain_text("This browser keeps nothing (SecurityError): 1 conversation")
