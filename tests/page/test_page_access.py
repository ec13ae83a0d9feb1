"""Everybody can use it: by keyboard alone, with a screen reader, in the dark, and on a phone."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.chat import Chat
from tests.page.conftest import PATIENCE_MS

AXE = Path(__file__).parents[2] / "lab" / "page" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ("chat", "cache", "engine", "demo")


def violations(page: Page) -> list[str]:
    """What axe finds, each with the first element that it concerns."""
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: make lint-page installs it where npm is")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, url: str, http: httpx.Client, scheme: Any) -> None:  # noqa: ANN401
    with browser.new_context(color_scheme=scheme) as context:
        context.set_default_timeout(PATIENCE_MS)
        chat = Chat(context.new_page(), url)
        assert violations(chat.page) == []
        chat.set(system="an old man keeps a lamp", tools="[]")
        reply = chat.send("where does the road end")
        chat.act(reply, "Regenerate")
        expect(reply).to_contain_text("2 / 2")
        chat.finished()
        reply.locator(".origins").click()
        assert violations(chat.page) == []
        reply.get_by_role("button", name="Side by side").click()
        chat.act(chat.messages.first, "Edit")
        assert violations(chat.page) == []
        chat.page.get_by_role("button", name="Settings").click()
        assert violations(chat.page) == []
        chat.page.get_by_role("button", name="Close").click()
        chat.page.get_by_role("button", name="Help").click()
        assert violations(chat.page) == []
        chat.page.keyboard.press("Escape")
        assert http.get("/cache/tree").json()["trees"]
        for view in VIEWS[1:]:
            chat.open(view)
            if view == "cache":
                chat.page.get_by_role("treeitem").first.click()
                chat.page.locator(".requests summary").first.click()
            else:
                expect(chat.page.locator(".panel").nth(1)).to_be_visible()
            assert violations(chat.page) == []


def reach(page: Page, name: str) -> None:
    """Presses Tab until a button or link of this name has the focus, for several rounds: the page may draw yet."""
    passed: list[str] = []
    for _ in range(300):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count():
            passed += [focused.get_attribute("aria-label") or "", focused.inner_text().strip()]
        if name in passed[-2:]:
            return
    raise AssertionError(f"Tab does not lead to {name!r}, but to {list(dict.fromkeys(passed))}")


def test_the_keyboard_is_enough(chat: Chat, page: Page, http: httpx.Client) -> None:
    keys = page.keyboard
    keys.press("Alt+s")
    page.locator('dialog [name="system"]').focus()
    keys.type("an old man keeps a lamp")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keys.press("Alt+h")
    expect(page.get_by_role("dialog", name="Help")).to_contain_text("search conversations")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keys.press("Alt+m")
    keys.type("where does the road end")
    keys.press("Enter")
    chat.finished()
    keys.press("Alt+m")
    for name in ("Copy this message", "Edit"):
        page.get_by_role("region", name="Messages").focus()
        reach(page, name)
    keys.press("Enter")
    keys.press("Control+a")
    keys.type("only a map")
    keys.press("Control+Enter")
    expect(chat.messages.first).to_contain_text("only a map")
    expect(chat.messages).to_have_count(2)
    chat.finished()
    page.get_by_role("region", name="Messages").focus()
    reach(page, "Previous branch")
    keys.press("Enter")
    expect(chat.messages.first).to_contain_text("where does the road end")
    chat.replies.last.locator(".origins").focus()
    report = http.get("/cache/requests?n=20").json()["requests"][-1]
    expect(page.locator(".told[data-origins]")).not_to_have_count(0)
    keys.press("Enter")
    expect(page.locator(".report")).to_contain_text(f"{report['generated']} tokens written")
    keys.press("Alt+n")
    expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
    keys.press("Alt+k")
    keys.type("road")
    expect(page.get_by_label("Search conversations")).to_have_value("road")
    expect(page.locator(".sidebar .title")).to_have_text(["where does the road end"])
    reach(page, "where does the road end")
    keys.press("Enter")
    expect(chat.messages).to_have_count(2)


def test_a_phone_shows_everything(browser: Browser, url: str, http: httpx.Client) -> None:
    size: Any = {"width": 360, "height": 640}
    with browser.new_context(viewport=size, has_touch=True, is_mobile=True) as context:
        context.set_default_timeout(PATIENCE_MS)
        chat = Chat(context.new_page(), url)
        page = chat.page
        chat.composer.fill("where does the road end")
        chat.composer.press("Enter")
        chat.composer.press_sequentially("and who keeps a lamp")
        page.get_by_role("button", name="Send").tap()
        sent = "where does the road end\nand who keeps a lamp"
        expect(chat.messages.first).to_contain_text(sent, use_inner_text=True)
        chat.finished()
        page.get_by_role("button", name="Conversations").click()
        page.get_by_role("button", name="New conversation").click()
        expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        page.get_by_role("button", name="Conversations").click()
        page.get_by_role("button", name="where does the road end", exact=True).click()
        expect(chat.messages).to_have_count(2)
        page.get_by_role("button", name="Conversations").click()
        page.get_by_role("button", name="Back").click()
        expect(chat.messages).to_have_count(2)
        assert http.get("/health").status_code == 200
        chat.open("cache")
        page.get_by_role("treeitem").first.tap()
        expect(page.get_by_role("region", name="The chosen stretch")).to_be_in_viewport(ratio=0.9)
        page.get_by_role("button", name="Help").tap()
        expect(page.get_by_role("dialog", name="Help")).to_be_in_viewport()
        page.get_by_role("button", name="Close").tap()
        for view in VIEWS:
            chat.open(view)
            expect(page.locator("main > *")).to_be_visible()
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= size["width"], f"{view} is {wide} pixels wide"
