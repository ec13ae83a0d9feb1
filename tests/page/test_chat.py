"""Everything that the chat does, against a real server."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.page.chat import Chat

DROP = """() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(["words"], "dropped.txt"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
# The transaction of the next search ends when `release` is called: one that asks again and again does not end.
HOLD_NEXT_SEARCH = """() => {
    const getAll = IDBObjectStore.prototype.getAll;
    IDBObjectStore.prototype.getAll = function () {
        IDBObjectStore.prototype.getAll = getAll;
        let isHeld = true;
        const ended = new Promise((resolve) => this.transaction.addEventListener("complete", resolve));
        window.release = () => {
            isHeld = false;
            return ended;
        };
        const ask = () => { if (isHeld) this.get("").onsuccess = ask; };
        ask();
        return getAll.apply(this);
    };
}"""


def test_a_reply_comes_and_is_kept(chat: Chat, page: Page) -> None:
    words = chat.send("where does the road end").inner_text()
    expect(chat.messages).to_have_count(2)
    page.reload()
    expect(chat.messages).to_have_count(2)
    assert chat.replies.last.inner_text() == words
    expect(page.get_by_role("heading", name="where does the road end")).to_be_visible()


def test_a_reply_can_be_stopped_and_continued(chat: Chat, page: Page) -> None:
    chat.set(max_tokens="3000")
    chat.composer.fill("tell me everything")
    chat.composer.press("Enter")
    expect(chat.replies.last.locator(".markdown")).not_to_be_empty()
    page.keyboard.press("Escape")
    stopped = chat.finished()
    expect(stopped).to_contain_text("Stopped.")
    before = chat.kept()[-1]["content"]
    chat.set(max_tokens="8")
    chat.act(stopped, "Continue")
    expect(stopped).to_contain_text("Cut off at the limit of tokens.")
    after = chat.kept()[-1]["content"]
    assert after.startswith(before)
    assert len(after) > len(before)
    goes_on = stopped.get_by_role("button", name="Continue", exact=True)
    expect(goes_on).to_have_count(1)
    chat.set(schema='{"type": "object"}')
    expect(goes_on).to_have_count(0)


def test_edits_and_new_replies_are_branches(chat: Chat, page: Page) -> None:
    chat.send("only a map")
    chat.act(chat.replies.last, "Regenerate")
    expect(chat.messages.last).to_contain_text("2 / 2")
    chat.finished()
    chat.edit(0, "only a lamp")
    first = chat.messages.first
    expect(first).to_contain_text("2 / 2")
    first.get_by_role("button", name="Previous branch").click()
    expect(first).to_contain_text("only a map")
    expect(chat.messages.last).to_contain_text("2 / 2")
    chat.messages.last.get_by_role("button", name="Side by side").click()
    expect(chat.messages.last.get_by_role("listitem")).to_have_count(2)
    page.reload()
    expect(chat.messages.first).to_contain_text("only a map")
    assert len(chat.kept()) == 5


def test_an_edited_reply_is_continued_as_it_stands(chat: Chat, page: Page) -> None:
    reply = chat.send("only a map")
    chat.act(reply, "Edit")
    page.locator(".editor textarea").fill("The road ends")
    page.get_by_role("button", name="Save as a branch").click()
    expect(reply).to_contain_text("2 / 2")
    expect(reply.locator(".markdown")).to_have_text("The road ends")
    chat.act(reply, "Continue")
    chat.finished()
    assert any(
        message["content"].startswith("The road ends") and len(message["content"]) > 13 for message in chat.kept()
    )


def test_the_form_of_a_reply_follows_a_schema(chat: Chat) -> None:
    chat.set(schema='{"enum": ["north", "south"]}', max_tokens="100", thinking="off")
    words = chat.send("which way").locator(".markdown").inner_text()
    assert json.loads(words) in ("north", "south")


def test_wrong_settings_are_told_and_harm_nothing(chat: Chat, page: Page) -> None:
    chat.set(schema="{")
    chat.composer.fill("which way")
    chat.composer.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the JSON schema in the settings is not JSON")
    goes_on = chat.replies.last.get_by_role("button", name="Continue", exact=True)
    expect(goes_on).to_have_count(0)
    chat.set(schema="", temperature="-1")
    chat.act(chat.replies.last, "Regenerate")
    expect(page.get_by_role("alert")).to_contain_text("temperature")


def test_what_is_typed_right_after_the_settings_is_not_lost(chat: Chat, page: Page) -> None:
    chat.set(max_tokens="8")
    page.get_by_role("button", name="Settings").click()
    close = page.get_by_role("button", name="Close")
    assert not close.evaluate("(button) => { button.click(); return button.closest('dialog').open; }")
    chat.send("where does the road end")


def test_a_text_file_is_part_of_the_message(chat: Chat, page: Page, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("an old man keeps a lamp")
    page.get_by_label("Files to add").set_input_files([note])
    expect(page.get_by_role("list", name="Files")).to_contain_text("note.txt")
    chat.send("what does he keep")
    expect(chat.messages.first.get_by_text("note.txt")).to_be_visible()
    page.evaluate(DROP)
    expect(page.get_by_role("list", name="Files")).to_contain_text("dropped.txt")
    page.get_by_role("button", name="Remove dropped.txt").click()
    expect(page.get_by_role("list", name="Files")).to_have_count(0)
    (tmp_path / "archive.zip").write_bytes(b"PK\xff\xfe")
    page.get_by_label("Files to add").set_input_files([tmp_path / "archive.zip"])
    expect(page.get_by_role("alert")).to_contain_text("archive.zip is no picture, no PDF and no text in UTF-8")


def test_conversations_are_searched_exported_imported_and_deleted(chat: Chat, page: Page, tmp_path: Path) -> None:
    chat.send("where does the road end")
    page.keyboard.press("Alt+n")
    chat.send("only a map of Zanzibar")
    titles = page.locator(".sidebar .title")
    expect(titles).to_have_count(2)
    page.keyboard.press("Alt+k")
    page.keyboard.type("ZANZIBAR")  # no word of the model, whose replies are random
    expect(titles).to_have_text(["only a map of Zanzibar"])
    page.get_by_label("Search conversations").fill("")
    expect(titles).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    file = tmp_path / "all.json"
    download.value.save_as(file)
    for title in ("where does the road end", "only a map of Zanzibar"):
        chat.delete(title)
    expect(titles).to_have_count(0)
    assert chat.kept() == []
    page.get_by_label("Conversations to import").set_input_files([file])
    expect(titles).to_have_count(2)
    expect(chat.messages).to_have_count(2)
    assert len(chat.kept()) == 4
    for name, text in {"other.json": "{}", "nothing.json": "null", "picture.json": "\x89PNG"}.items():
        (tmp_path / name).write_text(text)
        page.get_by_label("Conversations to import").set_input_files([tmp_path / name])
        why = "it holds no conversations of leftoff. Choose a file that Export has written"
        expect(page.get_by_role("alert")).to_have_text(f"{name} cannot be imported: {why}")


def test_enter_in_the_search_opens_the_first_that_is_found(chat: Chat, page: Page) -> None:
    for text in ("where is Zanzibar", "only a map of Wyoming"):  # no words of the model
        page.keyboard.press("Alt+n")
        chat.send(text)
    page.keyboard.press("Alt+k")
    page.keyboard.insert_text("zanzibar")
    page.keyboard.press("Enter")
    expect(chat.messages.first).to_contain_text("where is Zanzibar")
    expect(chat.composer).to_be_focused()


def test_an_older_conversation_is_shown_when_it_is_imported(chat: Chat, page: Page, tmp_path: Path) -> None:
    chat.send("where does the road end")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    download.value.save_as(tmp_path / "road.json")
    chat.delete("where does the road end")
    chat.send("only a map")
    chat.take_in(tmp_path / "road.json")
    expect(chat.messages.first).to_contain_text("where does the road end")


def test_a_search_that_ends_late_does_not_replace_the_result_of_a_later_one(chat: Chat, page: Page) -> None:
    for text in ("where is Zanzibar", "only a map of Wyoming"):  # no words of the model
        page.keyboard.press("Alt+n")
        chat.send(text)
    page.evaluate(HOLD_NEXT_SEARCH)
    page.get_by_label("Search conversations").fill("zanzibar")
    page.wait_for_function("() => window.release")
    page.get_by_label("Search conversations").fill("wyoming")
    titles = page.locator(".sidebar .title")
    expect(titles).to_have_text(["only a map of Wyoming"])
    page.evaluate("() => window.release().then(() => new Promise((resolve) => setTimeout(resolve, 200)))")
    expect(titles).to_have_text(["only a map of Wyoming"])


def test_a_conversation_is_as_it_was_left_when_it_is_opened_again(chat: Chat, page: Page) -> None:
    chat.send("where does the road end")
    page.keyboard.press("Alt+n")
    chat.send("only a map")
    chat.act(chat.replies.last, "Regenerate")
    expect(chat.messages.last).to_contain_text("2 / 2")
    chat.finished()
    page.get_by_role("button", name="Previous branch").click()
    chat.set(seed="7")
    for title in ("where does the road end", "only a map"):
        page.get_by_role("button", name=title, exact=True).click()
        expect(chat.messages.first).to_contain_text(title)
    expect(chat.messages.last).to_contain_text("1 / 2")
    expect(page.locator('dialog.settings [name="seed"]')).to_have_value("7")


def test_the_head_names_the_conversation_the_model_and_its_context(chat: Chat, page: Page) -> None:
    asked = "where does the road end, and what does the old man who keeps a lamp in his window say to that"
    expect(page.locator(".head .model")).to_contain_text("4,096 tokens of context")
    chat.send(asked)
    head, entry = page.locator(".head"), page.locator(".sidebar .title")
    expect(head.get_by_role("heading")).to_have_text(asked)
    expect(entry).to_have_text(asked)
    expect(page.locator(".sidebar h2")).to_have_text("Today")
    expect(head.locator(".model")).to_contain_text("tiny")
    report = chat.kept()[-1]["report"]
    used = report["prompt_tokens"] + report["generated"]
    expect(head.locator(".model")).to_contain_text(f"{used} of 4,096 tokens")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Lamps")
    page.get_by_label("Title").press("Escape")
    expect(head.get_by_role("heading")).to_have_text(asked)
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Lamps")
    page.get_by_label("Title").press("Enter")
    expect(head.get_by_role("heading")).to_have_text("Lamps")
    page.reload()
    expect(entry).to_have_text("Lamps")


def test_a_page_that_is_closed_while_a_reply_is_written_loses_nothing(chat: Chat, page: Page) -> None:
    finished = chat.send("where does the road end").inner_text()
    chat.set(max_tokens="3000")
    chat.composer.fill("tell me everything")
    chat.composer.press("Enter")
    expect(chat.messages).to_have_count(4)
    expect(chat.replies.last.locator(".markdown")).not_to_be_empty()
    page.reload()
    expect(chat.messages).to_have_count(4)
    assert chat.replies.first.inner_text() == finished
    expect(chat.replies.last).to_contain_text("The page was closed while this was written.")
