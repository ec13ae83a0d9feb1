"""The demonstration, played to its end on a small context."""

import threading
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.reply.response import EventStream
from tests.page.chat import Chat
from tests.patience import until
from tests.server.fixtures import settings


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(ctx=1024)) as host:
        yield host


def test_it_plays_off_against_on_and_cleans_up(chat: Chat, page: Page, http: httpx.Client) -> None:
    chat.open("demo")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("status").first).to_contain_text("All first tokens together")
    steps = page.locator(".step")
    expect(steps).to_have_count(9)
    for step in steps.all():
        off, on = step.locator(".side").all()
        assert "0 reused" in off.inner_text()
        assert on.locator(".ms").inner_text()
    reused = [
        int(on.inner_text().split(" reused")[0].split()[-1].replace(",", ""))
        for on in page.locator(".side:last-child").all()
    ]
    assert sum(number > 0 for number in reused) >= 7
    assert http.get("/cache/tree").json()["trees"] == []


def test_it_can_be_stopped_and_leaves_nothing(chat: Chat, page: Page, http: httpx.Client) -> None:
    chat.open("demo")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".side .ms").nth(1)).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Play")).to_be_enabled()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert until(lambda: http.get("/cache/tree").json()["trees"] == [])


def test_it_plays_on_while_the_cache_is_looked_at(chat: Chat, page: Page, http: httpx.Client) -> None:
    chat.open("demo")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".side .ms").first).not_to_be_empty()
    page.get_by_role("link", name="Cache").click()
    expect(page.get_by_role("heading", name="Prefixes")).to_be_visible()
    page.get_by_role("link", name="Demo").click()
    expect(page.locator(".side .ms").nth(2)).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    assert until(lambda: http.get("/cache/tree").json()["trees"] == [])


def test_it_plays_on_after_a_silence(
    chat: Chat, page: Page, host: ModelHost, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    chat.open("demo")
    may_go_on = threading.Event()
    with page.expect_response("**/v1/chat/completions"):
        host.call(may_go_on.wait)
        page.get_by_role("button", name="Play").click()
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 200))")  # of silence
    may_go_on.set()
    expect(page.locator(".side .ms").nth(1)).not_to_be_empty()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    assert until(lambda: http.get("/cache/tree").json()["trees"] == [])
