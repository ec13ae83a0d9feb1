"""A reply may say anything: nothing of it runs, nothing is loaded, and the page stays usable."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.page.archives import archive
from tests.page.chat import Chat
from tests.server.embedded import embedded_server

WRITTEN = "<script>harm=1</script><img src=x onerror=harm=2>[a](javascript:harm=3)"
TEXTS = (
    "<script>window.harm = 1</script>",
    "<img src=x onerror='window.harm = 2'> <svg onload='window.harm = 3'><a href='javascript:window.harm = 4'>a</a>",
    "[a](javascript:harm=5) [b](data:text/html,<script>harm=6</script>) [c]( vbscript:harm ) <javascript:harm=7>",
    "![b](http://example.com/b.png) <iframe src=//e.com></iframe><style>*{display:none}</style><base href=//e.com>",
    "**bold [[[( `` ``` ~~~ | a | --- <b onmouseover=window.harm=8>" * 50,
    '```html\n<script>window.harm = 9</script>\n```\n```"><script>harm=10</script>\nx\n```',
    r"$\href{javascript:window.harm=12}{x}$ $\style{display:none}{x}$ $\class{x}{y}$ $\includegraphics{//e.com/b.png}$ "
    r"$\text{<img src=x onerror=window.harm=13>}$ $x\" onmouseover=\"window.harm=14$ $$\rule{900em}{900em}$$ $\foo$ "
    r"$\def\a{\a\a}\a$ $\color{red;background:url(//e.com)}x$",
    "$" + "{" * 400 + "$ $$" + r"\frac{1}{" * 180 + "$$ " + r"\[\begin{array}" * 300,
    "[" * 20_000 + "](" * 20_000,
    "*_`" * 30_000,
    "> " * 5_000 + "deep",
    "<script>window.harm = 11</script> words " * 50_000,
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with embedded_server() as url:
        yield url


def assert_harmless(page: Page) -> None:
    page.locator(".message").first.hover(position={"x": 60, "y": 40})
    harmful = "script, img, svg, iframe, style, base, [onmouseover], [onerror], [style]"
    expect(page.locator(f":is(.markdown, .plain) :is({harmful})")).to_have_count(0)
    targets = [link.get_attribute("href") for link in page.locator(".message a").all()]
    assert {target for target in targets if target} <= {"http://example.com/b.png"}
    assert page.evaluate("() => window.harm") is None


def test_what_a_model_writes_is_only_text(chat: Chat, page: Page) -> None:
    chat.set(schema=json.dumps({"enum": [WRITTEN]}), thinking="off")
    reply = chat.send("Hello!")
    expect(reply.locator(".markdown")).to_contain_text("<script>harm=1</script><img src=x onerror=harm=2>")
    assert_harmless(page)


def test_hostile_texts_harm_nothing(chat: Chat, page: Page, tmp_path: Path) -> None:
    file = tmp_path / "hostile.json"
    for number, text in enumerate(TEXTS, 1):
        file.write_text(archive([f"{text}\n\nend {number}"]))
        chat.take_in(file)
        expect(page.locator(".sidebar .title")).to_have_count(number)
        expect(chat.messages.locator(".markdown, .plain")).to_contain_text(f"end {number}")
        assert_harmless(page)
        chat.composer.fill(f"still there, {number}")
        expect(chat.composer).to_have_value(f"still there, {number}")


def test_an_archive_of_other_forms_leaves_a_page_that_can_be_used(chat: Chat, page: Page, tmp_path: Path) -> None:
    odd = {"reasoning": {"a": 1}, "calls": [{"name": 7}], "report": {"notes": 1}, "files": [{}], "sent": ["x"]}
    messages = [
        {"id": "a", "parent": "b", "role": "user", "content": 42, "created": 1e300},
        {"id": "b", "parent": "a", "role": "assistant", "content": None, **odd},
    ]
    meta = {"id": "c", "title": None, "leaf": "b", "settings": {"system": 1, "seed": 7, "other": {}}}
    (tmp_path / "odd.json").write_text(
        json.dumps({"leftoff": 1, "conversations": [{"meta": meta, "messages": messages}]})
    )
    chat.take_in(tmp_path / "odd.json")
    expect(chat.messages).to_have_count(2)
    page.reload()
    expect(chat.messages.first).to_contain_text("42")
    chat.send("Hello!")
