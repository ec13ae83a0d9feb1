"""Fixtures: a browser for all tests of the page, a page with nothing kept, and a host with a small random model."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from tests.page.chat import Chat
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

# The first has no window to draw around the page.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Of a server that is stopped, or answers with an error: the tests look at what the page makes of it.
# The second: over plain HTTP, that header has no effect.
_EXPECTED = ("Failed to load resource", "The Cross-Origin-Opener-Policy header has been ignored")
# A name that every server beyond loopback answers to: to a browser, that is not the machine that it runs on itself.
LAN_NAME = "host.docker.internal"

# What the browser does not do. A browser obeys only the last such list, so this takes the place of Playwright's own.
_DISABLED = (
    # Its address bar, which nobody sees, is two pages of three hundred files that each new context loads.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "SpareRendererForSitePerProcess",  # a process that stands by for a page that does not come
    # As Playwright does: else plain HTTP becomes HTTPS, an old page stays a while, and the maker's servers are asked
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "PaintHolding",
    "AimEnabled",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PreconnectToSearch",
)

PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str | None:
    """The path of a browser that is installed; Playwright's own are not used."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("there is no chromium here: install it (apt-get install chromium) to test the page")
    with sync_playwright() as playwright:
        # without a sandbox: it cannot be had by root, as whom containers run
        names = f"--host-resolver-rules=MAP {LAN_NAME} 127.0.0.1"
        disabled = f"--disable-features={','.join(_DISABLED)}"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", names, disabled])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    """Replies of twelve tokens, unless a test wants more."""
    with open_host(settings(max_tokens=12)) as host:
        yield host


@contextmanager
def new_page(browser: Browser) -> Iterator[Page]:
    """An empty page, with nothing kept. Whatever the browser complains about is an error at the end."""
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            complaints.append(message.text)

    with browser.new_context(viewport={"width": 1200, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with new_page(browser) as page:
        yield page


@pytest.fixture
def chat(page: Page, url: str) -> Chat:
    return Chat(page, url)
