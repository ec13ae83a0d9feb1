"""Pictures and documents in the chat, as a person adds them."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from leftoff.chat.prompts import PromptMaker
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.factory.projectors import projector_path
from tests.page.chat import Chat
from tests.pdfs import pdf
from tests.pictures import png
from tests.server.fixtures import settings

RED = png("red", 64)
PASTE = """(target, [base64, event]) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], event === "paste" ? "image.png" : "dropped.png", { type: "image/png" }));
    const made = event === "paste"
        ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
        : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
    target.dispatchEvent(made);
}"""


@pytest.fixture
def bodies(page: Page) -> Iterator[list[Any]]:
    """What the page asks the server for replies with. The pictures are taken out: this host sees none."""
    found: list[Any] = []

    def pass_on(route: Route) -> None:
        found.append(json.loads(route.request.post_data or "{}"))
        route.continue_()

    page.route("**/v1/chat/completions", pass_on)
    yield found
    page.unroute_all(behavior="wait")


def test_pictures_are_pasted_dropped_chosen_and_removed(
    chat: Chat, page: Page, tmp_path: Path, bodies: list[Any]
) -> None:
    files = page.get_by_role("list", name="Files")
    for event in ("paste", "drop"):
        page.locator("#composer").evaluate(PASTE, [base64.b64encode(RED).decode(), event])
    (tmp_path / "chosen.png").write_bytes(RED)
    page.get_by_label("Files to add").set_input_files([tmp_path / "chosen.png"])
    expect(files.get_by_role("img")).to_have_count(3)
    page.get_by_role("button", name="Remove dropped.png").click()
    expect(files.get_by_role("img")).to_have_count(2)
    expect(page.locator(".composer").get_by_role("status")).to_have_text(
        "tiny sees no pictures: it is told that there was one."
    )
    chat.send("what is this")
    expect(files).to_have_count(0)
    expect(page.locator(".composer").get_by_role("status")).to_have_count(0)
    shown = chat.messages.first.get_by_role("img")
    expect(shown).to_have_count(2)
    url = f"data:image/png;base64,{base64.b64encode(RED).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}] * 2
    assert bodies[-1]["messages"][-1]["content"] == [*parts, {"type": "text", "text": "what is this"}]
    page.reload()
    expect(shown).to_have_count(2)
    assert shown.first.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") == 64


def test_pictures_stay_with_an_edit_and_in_an_archive(
    chat: Chat, page: Page, tmp_path: Path, bodies: list[Any]
) -> None:
    page.locator("#composer").evaluate(PASTE, [base64.b64encode(RED).decode(), "paste"])
    chat.send("what is this")
    chat.edit(0, "what is that")
    assert [part["type"] for part in bodies[-1]["messages"][-1]["content"]] == ["image_url", "text"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    file = tmp_path / "all.json"
    download.value.save_as(file)
    chat.delete("what is this")
    chat.take_in(file)
    expect(chat.messages.first.get_by_role("img")).to_have_count(1)
    chat.send("and again")
    sent = bodies[-1]["messages"][0]["content"][0]
    assert base64.b64decode(sent["image_url"]["url"].partition(",")[2]) == RED


def test_a_pdf_is_sent_as_the_file_that_it_is(chat: Chat, page: Page, tmp_path: Path, bodies: list[Any]) -> None:
    num_bytes = (tmp_path / "tides.pdf").write_bytes(pdf("tides of Brest"))
    page.get_by_label("Files to add").set_input_files([tmp_path / "tides.pdf"])
    expect(page.get_by_role("list", name="Files")).to_contain_text(f"tides.pdf {num_bytes} B")
    chat.send("when is high water")
    expect(chat.messages.first).to_contain_text("tides.pdf")
    assert bodies[-1]["messages"][-1]["content"][0]["file"]["filename"] == "tides.pdf"


def test_a_broken_picture_is_named(chat: Chat, page: Page, host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptMaker, "sees_pictures", True)
    assert host.prompts.sees_pictures
    page.reload()
    page.locator("#composer").evaluate(PASTE, [base64.b64encode(RED[:-30]).decode(), "paste"])
    expect(page.locator(".composer").get_by_role("status")).to_have_count(0)
    chat.composer.fill("what is this")
    chat.composer.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("image 1 of message 1 cannot be decoded")


def test_a_picture_shows_whether_it_was_reused(page: Page) -> None:
    """By the report of the server on the latest reply."""
    projector = str(projector_path("qwen3vl_merger", 64))
    with open_host(settings(max_tokens=12, mmproj=projector)) as host, serving(host) as url:
        chat = Chat(page, url)
        page.locator("#composer").evaluate(PASTE, [base64.b64encode(RED).decode(), "paste"])
        expect(page.get_by_role("list", name="Files").get_by_role("img")).to_have_count(1)
        expect(page.locator(".composer").get_by_role("status")).to_have_count(0)
        chat.send("what is this")
        told = page.locator(".message figcaption")
        computed, reused = re.compile(r"^\d+ tokens, computed$"), re.compile(r"^\d+ tokens, reused$")
        expect(told).to_have_text([computed])
        page.locator("#composer").evaluate(PASTE, [base64.b64encode(png("blue", 64)).decode(), "paste"])
        expect(page.get_by_role("list", name="Files").get_by_role("img")).to_have_count(1)
        chat.send("and this")
        expect(told).to_have_text([reused, computed])


@pytest.mark.usefixtures("chat")
def test_a_pdf_that_the_server_cannot_read_is_told_with_the_way_out(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "a.pdf"
    document.write_bytes(pdf("the road ends"))
    told = page.locator(".composer").get_by_role("status")
    page.get_by_label("Files to add").set_input_files([document])
    expect(page.get_by_role("list", name="Files")).to_contain_text("a.pdf")
    expect(told).to_have_count(0)
    monkeypatch.setattr("leftoff.server.openai.routes.can_read_pdfs", lambda: False)
    page.reload()
    page.get_by_label("Files to add").set_input_files([document])
    expect(told).to_contain_text("This server reads PDFs with pip install 'leftoff[pdf]'.")
