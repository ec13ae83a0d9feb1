"""Pictures of the page for the README: `python -m lab.page.pictures` plays a short story and writes docs/page/*.png.

It needs chromium, and takes them with the model that comes with leftoff, on a server of its own.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.hub.reference import default_model
from leftoff.scenes import guest_list
from leftoff.server.server import serving

FOLDER = Path(__file__).parents[2] / "docs" / "page"
SYSTEM = guest_list(12, "You answer questions using this guest list:")
QUESTIONS = ("Hello! My name is Clara.", "What is the room of Anna Ashbury?", "What is my name?")
_PATIENCE_MS = 300_000
_SIZE: ViewportSize = {"width": 1160, "height": 760}


def main() -> None:
    """Takes all pictures, in light and in dark."""
    parser = argparse.ArgumentParser(prog="python -m lab.page.pictures", description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="DIR", help="folder (default: docs/page)")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=_PATIENCE_MS)
    with tempfile.TemporaryDirectory() as cache, _server(cache) as url:
        for scheme in ("light", "dark"):
            with _page(url, scheme) as page:
                _chat(page)
                page.screenshot(path=folder / f"chat-{scheme}.png")
                _others(url)
                page.goto(f"{url}/#cache")
                page.get_by_role("treeitem").nth(1).click()
                page.wait_for_timeout(1500)  # for the second look at the tree
                page.screenshot(path=folder / f"cache-{scheme}.png")
            httpx.delete(f"{url}/cache", timeout=_PATIENCE_MS)


@contextmanager
def _server(cache: str) -> Iterator[str]:
    settings = Settings(model=str(default_model()), ctx=4096, slots=4, ram=256, disk=256, cache_dir=cache)
    with open_host(settings) as host, serving(host) as url:
        yield url


@contextmanager
def _page(url: str, scheme: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport=_SIZE, color_scheme="dark" if scheme == "dark" else "light")
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        page.goto(url)
        yield page
        browser.close()


def _chat(page: Page) -> None:
    """Three questions; the second is asked anew, so that there is a branch; the pointer rests on the last bar."""
    page.get_by_role("button", name="Settings").click()
    for name, value in (("system", SYSTEM), ("temperature", "0"), ("max_tokens", "24")):
        page.locator(f'dialog [name="{name}"]').fill(value)
    page.get_by_role("button", name="Close").click()
    for number, question in enumerate(QUESTIONS, 1):
        page.locator("#composer").fill(question)
        page.locator("#composer").press("Enter")
        expect(page.locator(".origins")).to_have_count(number)
    page.locator(".message.user").nth(1).hover()
    page.locator(".message.user").nth(1).get_by_role("button", name="Edit").click()
    page.locator(".editor textarea").fill("What is the room of Hugo Ashfield?")
    page.locator(".editor textarea").press("Control+Enter")
    expect(page.get_by_text("Hugo Ashfield").last).to_be_visible()
    expect(page.locator(".origins")).to_have_count(2)
    page.locator(".origins").last.hover()


def _others(url: str) -> None:
    """Another client with the same system prompt, and one with another."""
    talks = ((SYSTEM, "What is the phone of Hugo Ashbury?"), ("You are a helpful assistant.", "Hello!"))
    for system, question in talks:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        body = {"messages": messages, "max_tokens": 16, "temperature": 0}
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=_PATIENCE_MS).raise_for_status()


if __name__ == "__main__":
    main()
