"""Reasoning, tool calls and Markdown, with the model that comes with leftoff."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.behaviour.test_openai_tools import WEATHER, WEATHER_NOW
from tests.page.chat import Chat
from tests.server.embedded import embedded_server

MARKDOWN = "# Title\n\n- one\n- **two**\n\n```python\nprint('hello')\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n$x^2$"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with embedded_server() as url:
        yield url


def test_reasoning_is_folded(chat: Chat) -> None:
    chat.set(thinking="on", temperature="0", max_tokens="60")
    reply = chat.send("What is 5 plus 2?")
    thoughts = reply.locator("details.reasoning")
    expect(thoughts).to_have_count(1)
    expect(thoughts.locator("p")).to_be_hidden()
    thoughts.locator("summary").click()
    expect(thoughts.locator("p")).to_be_visible()


def test_a_tool_is_called_and_answered(chat: Chat, page: Page) -> None:
    chat.set(tools=json.dumps([WEATHER]), thinking="off", temperature="0", max_tokens="60")
    reply = chat.send("What's the weather in Paris?")
    call = reply.get_by_role("region", name="Tool call")
    expect(call.get_by_role("heading")).to_have_text("get_weather")
    assert json.loads(call.locator("code").inner_text()) == {"city": "Paris"}
    page.get_by_label("Result of get_weather").fill(json.dumps(WEATHER_NOW))
    page.get_by_label("Result of get_weather").press("Enter")
    expect(chat.messages).to_have_count(4)
    expect(chat.finished().locator(".markdown")).to_contain_text("21")
    sent = chat.kept()[2]
    assert (sent["role"], json.loads(sent["content"])) == ("tool", WEATHER_NOW)


def test_markdown_is_drawn_and_code_is_copied(chat: Chat, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reply = chat.send("Hello!")
    chat.act(reply, "Edit")
    page.locator(".editor textarea").fill(MARKDOWN)
    page.get_by_role("button", name="Save as a branch").click()
    words = reply.locator(".markdown")
    expect(words.get_by_role("heading", name="Title")).to_be_visible()
    expect(words.locator("strong")).to_have_text("two")
    expect(words.locator("td")).to_have_text(["1", "2"])
    expect(words.locator(".hljs-string")).to_have_text("'hello'")
    expect(words).to_contain_text("$x^2$")
    words.get_by_role("button", name="Copy this code").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == "print('hello')"
