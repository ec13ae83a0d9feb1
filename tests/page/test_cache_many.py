"""The cache view with five hundred conversations: it tells who asked, stays readable, and scrolls smoothly."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from tests.page.chat import Chat
from tests.page.conftest import new_page
from tests.page.frames import FRAME_MS, MainThread
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

NUMBER = 500
AGENTS = {"claude-cli/2": "Claude Code", "codex_cli_rs/1": "Codex", "opencode/1": "OpenCode", "curl/8": "curl"}
CHARACTERS = [chr(0x4E38 + number) for number in range(NUMBER)]  # groups of 64 share their first bytes


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(ram=512)) as host:
        yield host


@pytest.fixture(scope="module")
def crowd(host: ModelHost, url: str) -> list[dict[str, Any]]:
    """The tree of all conversations, once nothing changes in it any more."""
    for number, character in enumerate(CHARACTERS):
        agent = [*AGENTS][number % len(AGENTS)]
        body = {"prompt": f"an old man keeps a lamp in his window and {character} waits", "max_tokens": 1}
        httpx.post(f"{url}/v1/completions", json=body, headers={"user-agent": agent}, timeout=PATIENCE_S)
    assert until(lambda: all(slot["is_saved"] for slot in get(url, "/cache")["slots"] if slot["tokens"]))
    assert host.call(lambda: host.cache.ram.budget.num_evictions).result() == 0
    nodes: list[dict[str, Any]] = get(url, "/cache/tree")["trees"][0]["nodes"]
    return nodes


def get(url: str, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{url}{path}", timeout=PATIENCE_S).json()
    return answer


@pytest.fixture(scope="module")
def view(browser: Browser, url: str, crowd: list[dict[str, Any]]) -> Iterator[Page]:
    """It is drawn once: a test may leave something else chosen, opened or scrolled to, and all branches folded."""
    assert len(crowd) > NUMBER
    with new_page(browser) as page:
        Chat(page, url).open("cache")
        expect(page.locator(".fold").first).to_be_visible()
        yield page


def test_it_says_who_asked_and_how_often(view: Page) -> None:
    names = view.locator(".callers summary strong")
    expect(names).to_have_count(len(AGENTS))
    assert {*names.all_inner_texts()} == {*AGENTS.values()}
    each = NUMBER // len(AGENTS)
    for client in view.locator(".callers summary").all():
        expect(client).to_contain_text(f"1 conversation, {each} requests")  # prompts that are no chat are one


def test_small_branches_are_folded_and_labels_can_be_read(view: Page) -> None:
    folds = view.locator(".fold")
    assert view.get_by_role("treeitem").count() < 150
    labels = view.locator(".beside .words").evaluate_all(
        "(all) => all.map((each) => [each.innerText, each.clientWidth])"
    )
    assert labels
    assert all("waits" in text and width > 150 for text, width in labels)
    fold = view.locator(f'[data-node="{folds.first.get_attribute("data-node")}"]')
    expect(fold).to_contain_text("more, small and used earlier")
    num_shown = view.get_by_role("treeitem").count()
    fold.click()
    expect(fold).to_have_text("▾ Show fewer")
    assert view.get_by_role("treeitem").count() > num_shown + 30
    fold.press("Enter")
    expect(fold).to_contain_text("more, small and used earlier")
    expect(view.get_by_role("treeitem")).to_have_count(num_shown)


def test_a_click_shows_the_details_without_scrolling(view: Page) -> None:
    where = "() => [document.querySelector('.view').scrollTop, document.querySelector('.drawings').scrollTop]"
    nodes = view.locator(".node")
    for index in (0, nodes.count() // 2, nodes.count() - 1):
        nodes.nth(index).scroll_into_view_if_needed()
        before = view.evaluate(where)
        nodes.nth(index).click()
        expect(nodes.nth(index)).to_have_attribute("aria-selected", "true")
        expect(view.get_by_role("region", name="The chosen stretch")).to_be_in_viewport(ratio=1)
        assert view.evaluate(where) == before
    request = view.locator(".requests > ul > li").last
    request.locator("summary").click()
    expect(request.locator(".report")).to_be_in_viewport(ratio=1)


def test_a_folded_one_is_found_and_shown(view: Page) -> None:
    view.get_by_label("Search the cache by text").fill(f"window and {CHARACTERS[0]}")
    expect(view.locator(".node.found")).to_have_count(1)
    expect(view.locator(".node.found")).to_be_in_viewport()
    view.get_by_label("Search the cache by text").fill("")
    expect(view.locator(".node.found")).to_have_count(0)
    expect(view.locator(".fold").first).to_be_visible()


def test_it_scrolls_at_sixty_frames(view: Page) -> None:
    """With a fold open, so that there is much to scroll."""
    view.locator(".fold").last.press("Enter")
    expect(view.get_by_text("▾ Show fewer")).to_be_visible()
    for selector in (".drawings", ".view"):
        assert MainThread(view).frame_ms(selector) < FRAME_MS, selector
