"""How the page is served: to browsers alone, with headers that forbid everything else, and small."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from lab.page.vendor import FOLDER as VENDORED
from lab.page.vendor import PACKAGES
from leftoff.host.build import open_host
from leftoff.server.admin.page import FOLDER
from leftoff.server.server import serving
from tests.page.chat import Chat
from tests.server.fixtures import settings

HTML = {"Accept": "text/html,application/xhtml+xml"}
MAX_BYTES = 400_000
LATER = "temml.js"  # loaded with the first formula
FIRST_PAINT = """() => new Promise((resolve) => {
    const found = performance.getEntriesByName("first-contentful-paint");
    if (found.length) resolve(found[0].startTime);
    new PerformanceObserver((list) => {
        for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
    }).observe({ type: "paint", buffered: true });
})"""
SHIFTS = """() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; })
        .observe({ type: "layout-shift", buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})"""


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server with two keys."""
    with open_host(settings(api_key=("first", "second"), max_tokens=8)) as host, serving(host) as url:
        yield url


def test_a_browser_gets_the_page_and_others_a_line(http: httpx.Client) -> None:
    page = http.get("/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert http.get("/").text.startswith("leftoff is running")
    assert http.head("/").status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    again = http.get("/", headers=HTML | {"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["missing.js", "../config.py", "..%2fconfig.py", "vendor/preact.LICENSE", ""])
def test_no_other_file_is_served(http: httpx.Client, path: str) -> None:
    assert http.get(f"/page/{path}").status_code == 404


def test_it_can_be_turned_off() -> None:
    with open_host(settings(page=False)) as host, serving(host) as url, httpx.Client(base_url=url) as http:
        assert http.get("/", headers=HTML).text.startswith("leftoff is running")
        assert http.get("/page/main.js").status_code == 404


def test_all_of_it_is_small_and_of_no_file_too_much() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.name != LATER) <= MAX_BYTES
    own = [path for path in files if path.suffix in (".js", ".css") and VENDORED not in path.parents]
    assert [path.name for path in own if path.suffix == ".js" and len(path.read_text().splitlines()) > 220] == []


def test_what_few_need_is_not_loaded_at_first(page: Page, url: str) -> None:
    loaded: list[str] = []
    page.on("response", lambda response: loaded.append(response.url))
    Chat(page, url)
    assert f"{url}/page/main.js" in loaded
    assert not [each for each in loaded if each.endswith(LATER)]


def test_the_libraries_are_those_that_were_fetched() -> None:
    """By their hashes: nobody has changed a file by hand."""
    names = sorted(target for package in PACKAGES for target in package.files.values())
    files = [path for path in VENDORED.rglob("*") if path.is_file() and path.suffix != ".ts"]
    assert {path.relative_to(VENDORED).as_posix() for path in files} == {*names, "HASHES"}
    lines = (f"{hashlib.sha256((VENDORED / name).read_bytes()).hexdigest()}  {name}" for name in names)
    assert (VENDORED / "HASHES").read_text().splitlines() == list(lines)


def test_the_key_is_asked_for_at_once_and_checked(page: Page, locked: str) -> None:
    chat = Chat(page, locked)
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_label("Key").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("does not know this key")
    dialog.get_by_label("Key").fill("first")
    dialog.get_by_label("Key").press("Enter")
    expect(dialog).to_have_count(0)
    chat.send("who am I")
    page.reload()
    chat.act(chat.replies.last, "Regenerate")
    chat.finished()
    expect(dialog).to_have_count(0)


def test_a_message_waits_for_the_key_and_is_sent_then(page: Page, locked: str) -> None:
    chat = Chat(page, locked)
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_role("button", name="Cancel").click()
    chat.composer.fill("who am I")
    chat.composer.press("Enter")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(chat.replies.last.get_by_role("alert")).to_have_text(
        "This server wants an API key: ask whoever runs it for one."
    )
    chat.act(chat.replies.last, "Regenerate")
    dialog.get_by_label("Key").fill("second")
    dialog.get_by_label("Key").press("Enter")
    expect(chat.finished().get_by_role("alert")).to_have_count(0)


def test_a_view_that_was_left_without_a_key_asks_no_more_and_comes_with_it(page: Page, locked: str) -> None:
    page.clock.install()
    Chat(page, locked)
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_role("button", name="Cancel").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("link", name="Cache").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("This server wants an API key")
    num_asked = len(asked)
    page.clock.run_for(10_000)
    page.get_by_role("link", name="Engine").click()
    expect(dialog).to_be_visible()
    assert not any("/cache" in url for url in asked[num_asked:])
    dialog.get_by_label("Key").fill("first")
    dialog.get_by_label("Key").press("Enter")
    expect(page.get_by_role("heading", name="Connect")).to_be_visible()
    page.get_by_role("link", name="Cache").click()
    expect(page.locator(".gauge").first).to_be_visible()


def test_it_is_painted_at_once_and_nothing_moves(page: Page, url: str) -> None:
    """The margin is wide, for a busy machine; `lab.page.speed` measures closely."""
    chat = Chat(page, url)
    assert page.evaluate(FIRST_PAINT) < 3000
    assert page.evaluate(SHIFTS) < 0.01
    expect(chat.composer).to_be_focused()
