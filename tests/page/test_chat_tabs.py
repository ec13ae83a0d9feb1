"""Two tabs of the page: each shows what the other does."""

from playwright.sync_api import Page, expect

from tests.page.chat import Chat
from tests.page.test_chat_several import begin_long


def test_what_one_tab_changes_is_seen_in_the_other(chat: Chat, page: Page) -> None:
    other = Chat(page.context.new_page(), chat.url)
    titles = other.page.locator(".sidebar .title")
    chat.send("where does the road end")
    expect(titles).to_have_text(["where does the road end"])
    titles.first.click()
    expect(other.messages).to_have_count(2)
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Roads")
    page.get_by_label("Title").press("Enter")
    expect(titles).to_have_text(["Roads"])
    expect(other.page.get_by_role("heading", name="Roads")).to_be_visible()
    chat.send("only a map")
    expect(other.messages).to_have_count(4)
    other.send("only a lamp")
    expect(chat.messages).to_have_count(6)
    chat.act(chat.replies.last, "Regenerate")
    expect(other.messages.last).to_contain_text("1 / 2")
    chat.finished()
    expect(chat.messages.last).to_contain_text("2 / 2")
    other.delete("Roads")
    expect(page.locator(".sidebar .title")).to_have_count(0)
    expect(chat.messages).to_have_count(0)


def test_a_reply_that_another_tab_writes_is_not_overwritten_and_can_be_stopped(chat: Chat, page: Page) -> None:
    other = Chat(page.context.new_page(), chat.url)
    begin_long(chat, "tell me everything")
    other.page.locator(".sidebar .title").click()
    expect(other.stop_button).to_be_visible()
    expect(other.replies.last.locator(".markdown")).not_to_be_empty()
    expect(other.page.get_by_role("alert")).to_have_count(0)
    other.page.reload()
    expect(other.stop_button).to_be_visible()
    expect(other.page.get_by_role("alert")).to_have_count(0)
    other.page.get_by_role("button", name="Rename").click()
    other.page.get_by_label("Title").fill("Everything")
    other.page.get_by_label("Title").press("Enter")
    expect(page.get_by_role("heading", name="Everything")).to_be_visible()
    other.page.get_by_role("button", name="Stop", exact=True).click()
    said = chat.finished().locator(".markdown").inner_text()
    expect(other.finished().locator(".markdown")).to_have_text(said, use_inner_text=True)
    assert chat.kept()[-1]["state"] == "cut"
    page.reload()
    expect(page.get_by_role("heading", name="Everything")).to_be_visible()
    expect(chat.replies.last).to_contain_text("Stopped.")
