"""The engine's view: what runs here, and lines that can be pasted."""

import httpx
from playwright.sync_api import Page, expect

from leftoff.agents import Connection
from leftoff.config import NO_LIMIT
from leftoff.host.build import open_host
from leftoff.server.admin.engine import client_lines
from leftoff.server.server import serving
from tests.page.chat import Chat
from tests.server.fixtures import settings


def test_it_tells_what_runs_and_how_to_connect(chat: Chat, page: Page, http: httpx.Client, url: str) -> None:
    engine = http.get("/engine").json()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.open("engine")
    for fact in (
        "tiny",
        engine["model"]["architecture"],
        engine["memory"]["meaning"],
        "4,096 tokens, shared by 4 slots",
    ):
        expect(page.get_by_role("definition").filter(has_text=fact).first).to_be_visible()
    lines = dict(client_lines(Connection(url, "tiny", 4096)))
    assert {client["name"]: client["line"] for client in engine["clients"]} == lines
    expect(page.get_by_text("Settings other than the defaults")).to_be_visible()
    expect(page.get_by_text("a window of 4,096 tokens is too small for claude, codex, ")).to_be_visible()
    for name, line in lines.items():
        expect(page.get_by_text(line, exact=True)).to_be_visible()
        page.get_by_role("button", name=f"Copy the line for {name}").click()
        assert page.evaluate("() => navigator.clipboard.readText()") == line


def test_a_cache_without_a_limit_has_no_number(page: Page) -> None:
    with open_host(settings(ram=NO_LIMIT)) as host, serving(host) as url:
        chat = Chat(page, url)
        chat.open("engine")
        for fact in ("RAM for the cache", "--ram"):
            expect(page.get_by_role("term").filter(has_text=fact).locator("+ dd")).to_have_text("no limit")
        chat.open("cache")
        expect(page.locator(".gauge").first).to_contain_text("no limit")


def test_no_key_is_told(http: httpx.Client) -> None:
    settings = http.get("/engine").json()["settings"]
    assert settings["max-tokens"] == 12
    assert "api-key" not in settings
