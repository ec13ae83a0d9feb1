"""What replies are made of, tables, code and formulas, is drawn, and can be taken elsewhere."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.page.archives import archive
from tests.page.chat import Chat
from tests.page.conftest import new_page

TABLE = "| model | context |\n| :-- | --: |\n| small | 4,096 |"
REPLY = rf"""Euler: $e^{{i\pi}} = -1$, and it costs $5 to $10.

$$
\int_0^1 x\,dx
- \frac{{1}}{{2}} = 0
$$

\[\begin{{aligned}} a &= b \\ c &= d \end{{aligned}}\]

{TABLE}

```python
print("x")
```

Unfinished: $\frac{{1$ and \(\nonsense\)"""
CLIPBOARD = """async () => {
    const [item] = await navigator.clipboard.read();
    return Object.fromEntries(await Promise.all(
        item.types.map(async (type) => [type, await (await item.getType(type)).text()])));
}"""


@pytest.fixture(scope="module")
def words(browser: Browser, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locator]:
    """A reply, which no test changes."""
    with new_page(browser) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        file = tmp_path_factory.mktemp("reply") / "reply.json"
        file.write_text(archive(["Say everything", REPLY]))
        Chat(page, url).take_in(file)
        expect(page.locator("math")).to_have_count(3)
        yield page.locator(".message.assistant .markdown")


def test_formulas_are_drawn_and_prices_are_not(words: Locator) -> None:
    expect(words.locator("math[display=block]")).to_have_count(2)
    expect(words.locator("math msup mi")).to_have_text(["e", "i", "π"])
    expect(words.locator("math mfrac")).to_have_count(1)
    expect(words.locator("math mtr")).to_have_count(2)
    expect(words.locator("li")).to_have_count(0)  # a line that begins with a minus is no list
    expect(words).to_contain_text("it costs $5 to $10.")
    expect(words.locator("code.math")).to_have_text([r"$\frac{1$", r"\(\nonsense\)"])


def test_what_is_selected_is_copied_with_its_formulas_as_latex(words: Locator) -> None:
    page = words.page
    words.evaluate("(element) => getSelection().selectAllChildren(element)")
    page.keyboard.press("Control+c")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert r"Euler: $e^{i\pi} = -1$, and" in copied
    assert r"\frac{1}{2} = 0" in copied
    assert "small\t4,096" in copied
    assert 'print("x")' in copied
    assert "Copy" not in copied


def test_a_table_is_copied_as_markdown_and_as_cells(words: Locator) -> None:
    words.get_by_role("button", name="Copy this table").click()
    copied = words.page.evaluate(CLIPBOARD)
    assert copied["text/plain"] == TABLE
    assert '<td align="right">4,096</td>' in copied["text/html"]
