"""Reasoning, tool calls and Markdown, with the model that comes with leftoff."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.behaviour.test_openai_tools import WEATHER, WEATHER_NOW
from tests.page.chat import Chat
from tests.server.embedded import embedded_server

MARKDOWN = r"""# Title

- one
- **two**

```python
print('hello')
```

| a | number |
| - | -----: |
| unbreakableword | 2 |

- [x] done
- [ ] to do

$a_1 * b_2 * c_3$ costs $5 or \(\frac{a}{b}\), and

$$
\sum_{i=1}^n *x_i* \\ y
$$
"""


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
    expect(words.locator("td")).to_have_text(["unbreakableword", "2"])
    aligned = "(all) => all.map((cell) => getComputedStyle(cell).textAlign)"
    assert words.locator("td").evaluate_all(aligned) == ["left", "-webkit-right"]
    expect(words.get_by_role("checkbox")).to_have_count(2)
    expect(words.get_by_role("checkbox").first).to_be_checked()
    expect(words.get_by_role("checkbox").last).not_to_be_checked()
    expect(words.locator("em")).to_have_count(0)
    source = [r"$a_1 * b_2 * c_3$", r"\(\frac{a}{b}\)", "$$\n\\sum_{i=1}^n *x_i* \\\\ y\n$$"]
    expect(words.locator("math")).to_have_count(3)
    assert [each.get_attribute("alttext") for each in words.locator("math").all()] == source
    expect(words.locator(".hljs-string")).to_have_text("'hello'")
    words.get_by_role("button", name="Copy this code").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == "print('hello')"
    page.set_viewport_size({"width": 360, "height": 640})
    lines = "(cell) => { const words = document.createRange(); words.selectNodeContents(cell); "
    assert words.locator("td").first.evaluate(f"{lines} return words.getClientRects().length; }}") == 1
