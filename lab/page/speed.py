"""What the page costs, and how quick it is: `python -m lab.page.speed` prints four figures, and fails if one is poor.

- decode, with somebody who reads /cache/events over decode without: turn by turn, so that other load slows both alike
- decode, with the cache view open in a browser on the same cores, over decode without
- the first paint with nothing in the browser's cache
- from a key to the frame that shows it, in a conversation of 3,000 messages
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.hub.reference import default_model
from leftoff.server.server import serving

_PATIENCE_S = 300.0
_MIN_RATIO = 0.99
_MAX_PAINT_MS = 300
_MAX_KEY_MS = 50
_MESSAGES = 3000
_LISTENER = (
    "import httpx, sys\nwith httpx.stream('GET', sys.argv[1], timeout=None) as s:\n for _ in s.iter_lines(): pass"
)
_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
_KEYS = """(number) => new Promise((resolve) => {
    const found = [];
    const seen = (event) => {
        if (found.push(performance.now() - event.timeStamp) === number) resolve(found);
    };
    const composer = document.getElementById("composer");
    composer.addEventListener("keydown", (event) => requestAnimationFrame(() => setTimeout(seen, 0, event)));
})"""


def main() -> int:
    """Measures all; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m lab.page.speed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="pairs of replies (default: 10)")
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="of a reply (default: 200)")
    args = parser.parse_args()
    if shutil.which("chromium") is None:
        print("there is no chromium here: nothing is measured")
        return 0
    expect.set_options(timeout=1000 * _PATIENCE_S)
    settings = Settings(model=str(default_model()), ctx=4096, threads=1, slots=2, ram=256, disk=0)
    with open_host(settings) as host, serving(host) as url, _browser() as browser:
        paint_ms = median(_first_paint(browser, url) for _ in range(5))
        key_ms = median(_keys(browser, url))
        listened = _ratio(lambda: _listening(url), url, args.rounds, args.tokens)
        opened = _ratio(lambda: _watching(browser, url), url, args.rounds, args.tokens)
    print(f"decode with a listener: {listened:.3f} of without")
    print(f"decode with the cache view in a browser here: {opened:.3f} of without")
    print(f"first paint: {paint_ms:.0f} ms")
    print(f"key to frame, {_MESSAGES:,} messages: {key_ms:.0f} ms")
    return int(listened < _MIN_RATIO or paint_ms > _MAX_PAINT_MS or key_ms > _MAX_KEY_MS)


def _ratio(look: Callable[[], AbstractContextManager[None]], url: str, rounds: int, tokens: int) -> float:
    """The median over pairs of replies, one with and one without somebody who looks, in alternating order."""
    ratios = []
    for number in range(rounds):
        rates = {}
        for is_seen in (number % 2 == 0, number % 2 == 1):
            if is_seen:
                with look():
                    rates[True] = _rate(url, tokens)
            else:
                rates[False] = _rate(url, tokens)
        ratios.append(rates[True] / rates[False])
    return median(ratios)


def _rate(url: str, tokens: int) -> float:
    body = {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "temperature": 0}
    answer = httpx.post(f"{url}/completion", json=body, timeout=_PATIENCE_S).json()
    rate: float = answer["timings"]["predicted_per_second"]
    return rate


@contextmanager
def _listening(url: str) -> Iterator[None]:
    listener = subprocess.Popen([sys.executable, "-c", _LISTENER, f"{url}/cache/events"])
    try:
        threading.Event().wait(1.0)
        yield
    finally:
        listener.kill()
        listener.wait()


@contextmanager
def _watching(browser: Browser, url: str) -> Iterator[None]:
    with _open(browser, f"{url}/#cache") as page:
        expect(page.locator(".gauge").first).to_be_visible()
        yield


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def _open(browser: Browser, url: str) -> Iterator[Page]:
    with browser.new_context() as context:
        context.set_default_timeout(1000 * _PATIENCE_S)
        page = context.new_page()
        page.goto(url)
        yield page


def _first_paint(browser: Browser, url: str) -> float:
    with _open(browser, url) as page:
        ms: float = page.evaluate(_PAINT)
        return ms


def _keys(browser: Browser, url: str) -> list[float]:
    message = {"conversation": "c", "state": "done", "finish": "stop"}
    messages = [
        message
        | {"id": f"m{number}", "parent": f"m{number - 1}" if number else None, "created": number}
        | {"role": ("user", "assistant")[number % 2], "content": f"message {number}\n\n- **one**\n- `two`"}
        for number in range(_MESSAGES)
    ]
    meta = {"id": "c", "title": "long", "created": 1, "updated": 1, "leaf": f"m{_MESSAGES - 1}", "settings": {}}
    with _open(browser, url) as page, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.json"
        file.write_text(json.dumps({"leftoff": 1, "conversations": [{"meta": meta, "messages": messages}]}))
        page.get_by_label("Conversations to import").set_input_files([file])
        expect(page.locator(".message").last).to_contain_text(f"message {_MESSAGES - 1}")
        text = "how quick is this"
        handle = page.evaluate_handle(f"() => {{ window.measured = ({_KEYS})({len(text)}); }}")
        page.locator("#composer").press_sequentially(text, delay=30)
        handle.dispose()
        found: list[float] = page.evaluate("() => window.measured")
        return found


if __name__ == "__main__":
    sys.exit(main())
