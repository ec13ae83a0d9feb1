"""Where the keyboard writes: in the message, unless it is used somewhere else."""

from playwright.sync_api import Browser, Page, expect

from tests.page.chat import Chat


def test_the_message_is_written_without_a_click(chat: Chat, page: Page) -> None:
    expect(chat.composer).to_be_focused()
    page.keyboard.type("where does the road end")
    page.get_by_role("button", name="Send").click()
    chat.finished()
    expect(chat.composer).to_be_focused()
    chat.act(chat.replies.last, "Regenerate")
    expect(chat.messages.last).to_contain_text("2 / 2")
    chat.finished()
    expect(chat.composer).to_be_focused()
    for name in ("New conversation", "New conversation", "where does the road end"):  # also where that is shown already
        page.get_by_role("button", name=name, exact=True).click()
        expect(chat.composer).to_be_focused()
    page.get_by_label("Search conversations").focus()
    page.keyboard.press("Alt+n")
    expect(chat.composer).to_be_focused()


def test_a_reply_that_ends_takes_the_focus_from_nobody(chat: Chat, page: Page) -> None:
    chat.set(max_tokens="300")
    first = chat.send("where does the road end").locator(".markdown")
    search = page.get_by_label("Search conversations")
    chat.composer.press("Enter")
    chat.composer.fill("only a map")
    chat.composer.press("Enter")
    search.focus()
    chat.finished()
    expect(search).to_be_focused()
    chat.composer.fill("only a lamp")
    chat.composer.press("Enter")
    first.select_text()
    chat.finished()
    assert page.evaluate("() => getSelection().type") == "Range"


def test_a_touch_screen_shows_no_keyboard_by_itself(browser: Browser, url: str) -> None:
    with browser.new_context(has_touch=True, is_mobile=True, viewport={"width": 400, "height": 800}) as context:
        chat = Chat(context.new_page(), url)
        expect(chat.composer).not_to_be_focused()
        chat.composer.fill("where does the road end")
        chat.page.get_by_role("button", name="Send").tap()
        chat.finished()
        expect(chat.composer).not_to_be_focused()
