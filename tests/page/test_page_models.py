"""Several models on the page: a choice for each conversation, who is loaded, and the trees of each."""

import re
from collections.abc import Iterator
from threading import Event

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from leftoff.host.late_host import LateHost
from tests.page.chat import Chat
from tests.page.test_page_access import AXE, violations
from tests.patience import PATIENCE_S
from tests.server.test_hosts import served

FIRST, SECOND, THIRD = "llama", "qwen35", "gemma3"


@pytest.fixture(scope="module")
def several() -> Iterator[tuple[str, list[LateHost]]]:
    """Three models, and room for one."""
    with served(FIRST, SECOND, THIRD, most=1, ctx=1024, max_tokens=8, read_ahead=False) as started:
        yield started


@pytest.fixture
def url(several: tuple[str, list[LateHost]]) -> str:
    httpx.delete(f"{several[0]}/cache", timeout=PATIENCE_S)
    return several[0]


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


def choice(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Model")


def say(http: httpx.Client, model: str, prompt: str) -> None:
    http.post("/v1/completions", json={"model": model, "prompt": prompt, "max_tokens": 1}).raise_for_status()


def test_a_conversation_remembers_its_model_and_says_who_wrote_what(chat: Chat, page: Page, http: httpx.Client) -> None:
    expect(choice(page)).to_have_value(FIRST)
    reply = chat.send("where does the road end")
    expect(reply).to_have_attribute("aria-label", "Model")
    choice(page).focus()
    page.keyboard.press("ArrowDown")
    expect(choice(page)).to_have_value(SECOND)
    chat.send("only a map")
    asked = [record["model"] for record in http.get("/cache/requests?n=2").json()["requests"]]
    assert asked == [SECOND, FIRST], "the newest first"
    expect(chat.replies.locator(".role")).to_have_text([FIRST, SECOND])
    expect(choice(page).locator("option")).to_have_text(
        [f"{FIRST} · sleeping", f"{SECOND} · loaded", f"{THIRD} · unloaded"]
    )
    page.get_by_role("button", name="New conversation").click()
    choice(page).select_option(FIRST)
    reply = chat.send("only a lamp")
    expect(reply).to_have_attribute("aria-label", "Model")  # one wrote all of it
    page.reload()
    expect(choice(page)).to_have_value(FIRST)
    page.get_by_role("button", name="where does the road end", exact=True).click()
    expect(choice(page)).to_have_value(SECOND)
    expect(chat.replies.locator(".role")).to_have_text([FIRST, SECOND])


def test_who_waits_for_a_model_sees_that_it_is_being_loaded(
    chat: Chat, page: Page, http: httpx.Client, several: tuple[str, list[LateHost]]
) -> None:
    say(http, FIRST, "an old man")
    say(http, SECOND, "an old man")
    may_go_on = Event()
    several[1][0].open().call(may_go_on.wait)  # as its thread is while it loads
    chat.composer.fill("where does the road end")
    chat.composer.press("Enter")
    expect(page.get_by_text(f"Waiting: {FIRST} is being loaded…")).to_be_visible()
    expect(choice(page).locator("option").first).to_have_text(f"{FIRST} · loading")
    page.get_by_role("link", name="Cache").click()
    expect(page.locator(".model-title")).to_contain_text([SECOND])
    may_go_on.set()
    page.get_by_role("link", name="Chat").click()
    chat.finished()


def test_a_model_that_is_not_there_any_more_is_said(chat: Chat, page: Page) -> None:
    chat.send("where does the road end")
    page.evaluate(
        """() => new Promise((resolve) => {
            const request = indexedDB.open("leftoff", 1);
            request.onsuccess = () => {
                const store = request.result.transaction("conversations", "readwrite").objectStore("conversations");
                store.getAll().onsuccess = ({ target: { result: [head] } }) => {
                    head.settings.model = "gone";
                    store.put(head).onsuccess = () => { request.result.close(); resolve(); };
                };
            };
        })"""
    )
    page.reload()
    expect(choice(page).locator("option:checked")).to_have_text("gone · not here")
    chat.composer.fill("only a map")
    chat.composer.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text(f"choose one of {FIRST}, {SECOND}, {THIRD}")
    choice(page).select_option(SECOND)
    chat.act(chat.replies.last, "Regenerate")
    chat.finished()
    expect(choice(page).locator("option")).to_have_count(3)


@pytest.mark.usefixtures("chat")
def test_the_defaults_shown_are_those_of_the_chosen_model_and_load_none(
    page: Page, several: tuple[str, list[LateHost]]
) -> None:
    choice(page).select_option(THIRD)
    page.get_by_role("button", name="Settings").click()
    expect(page.locator('dialog.settings [name="temperature"]')).to_have_attribute("placeholder", "")
    page.get_by_role("button", name="Close").click()
    choice(page).select_option(FIRST)
    page.get_by_role("button", name="Settings").click()
    expect(page.locator('dialog.settings [name="temperature"]')).not_to_have_attribute("placeholder", "")
    assert several[1][2].status == "unloaded"


def test_the_trees_of_each_model_stand_under_its_name(chat: Chat, page: Page, http: httpx.Client) -> None:
    for model in (FIRST, SECOND):
        say(http, model, f"an old man keeps a lamp in the window for {model}")
    chat.open("cache")
    titles = page.locator(".model-title")
    expect(titles).to_have_count(2)
    tiers = http.get("/cache").json()["models"]
    for title, model, status in zip(titles.all(), (FIRST, SECOND), ("sleeping", "loaded"), strict=True):
        expect(title).to_contain_text(f"{model} {status} · 1 conversation · ")
        expect(title).to_contain_text("in RAM")
        assert tiers[model]["tiers"][0]["used_bytes"] > 0
    expect(page.get_by_role("tree")).to_have_count(2)
    expect(page.locator(".requests > ul > li").first).to_contain_text(f"python-httpx · {SECOND} · ")
    page.get_by_label("Search the cache by text").fill(f"window for {FIRST}")
    found = page.locator(".node.found")
    expect(found).to_have_count(1)
    found.click()
    details = page.get_by_role("region", name="The chosen stretch")
    details.get_by_role("button", name="Pin", exact=True).click()
    expect(details.get_by_role("button", name="Unpin")).to_be_visible()
    details.get_by_role("button", name="Drop").click()
    chat.agree("Drop")
    expect(found).to_have_count(0)
    expect(titles).to_contain_text([SECOND])


def test_many_conversations_of_two_models_stay_readable(chat: Chat, page: Page, http: httpx.Client) -> None:
    for model in (FIRST, SECOND):
        for number in range(110):
            say(http, model, f"an old man keeps a lamp in his window and {chr(0x4E40 + number)} waits")
    chat.open("cache")
    expect(page.locator(".fold").first).to_contain_text("more, small and used earlier")
    expect(page.locator(".model-title")).to_have_count(2)
    assert page.get_by_role("treeitem").count() < 100
    box = page.locator(".drawings")
    assert box.evaluate("(box) => box.clientHeight") < 600
    box.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(page.locator(".model-title").last).to_be_in_viewport()
    node = page.get_by_role("tree").last.locator(".node").last
    node.click()
    expect(page.get_by_role("region", name="The chosen stretch")).to_be_in_viewport()
    expect(page.locator('[aria-selected="true"]')).to_have_count(1)


def test_the_engine_of_each_model_is_shown(chat: Chat, page: Page, http: httpx.Client) -> None:
    say(http, FIRST, "an old man")
    say(http, SECOND, "an old man")
    chat.open("engine")
    rows = page.locator(".models tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("sleeping")
    expect(rows.nth(1)).to_contain_text("loaded")
    expect(rows.nth(2)).to_contain_text("unloaded")
    fact = page.get_by_role("definition")
    expect(fact.filter(has_text=FIRST).first).to_be_visible()
    rows.nth(1).get_by_role("button", name=SECOND, exact=True).click()
    expect(fact.filter(has_text=http.get("/engine?model=qwen35").json()["memory"]["meaning"]).first).to_be_visible()
    expect(fact.filter(has_text=SECOND).first).to_be_visible()
    rows.nth(2).get_by_role("button", name=THIRD, exact=True).click()
    expect(page.get_by_role("heading", name="Memory")).to_have_count(0)
    expect(rows.nth(2)).to_contain_text("unloaded")


def test_in_the_demonstration_two_models_take_turns(
    chat: Chat, page: Page, several: tuple[str, list[LateHost]]
) -> None:
    chat.open("demo")
    expect(page.locator(".step")).to_have_count(13)
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("status").first).to_contain_text("All first tokens together")
    sides = page.get_by_role("region", name="Two models take turns").locator(".side")
    expect(sides).to_have_count(8)
    told = [re.findall(r"([\d,]+) (?:reused|read)", side.inner_text()) for side in sides.all()]
    counts = [[int(count.replace(",", "")) for count in each] for each in told]
    assert all(reused == 0 for reused, _ in counts[::2]), "off"
    assert [reused > read for reused, read in counts[1::2]] == [False, False, True, True]
    assert [host.status for host in several[1][:2]] == ["sleeping", "loaded"], "there was room for one"
    assert httpx.get(f"{chat.url}/cache/tree", timeout=PATIENCE_S).json()["trees"] == []


def test_models_are_loaded_and_unloaded_by_hand(chat: Chat, page: Page, http: httpx.Client) -> None:
    say(http, FIRST, "an old man")
    say(http, SECOND, "an old man")
    chat.open("engine")
    rows = page.locator(".models tbody tr")
    rows.nth(0).get_by_role("button", name=f"Load {FIRST}").click()
    expect(rows.locator("td:nth-child(2)")).to_have_text(["loaded", "sleeping", "unloaded"])  # there is room for one
    rows.nth(0).get_by_role("button", name=f"Unload {FIRST}").click()
    expect(rows.locator("td:nth-child(2)")).to_have_text(["sleeping", "sleeping", "unloaded"])


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: make lint-page installs it where npm is")
def test_axe_finds_nothing_with_several_models(chat: Chat, page: Page) -> None:
    chat.send("where does the road end")
    choice(page).select_option(SECOND)
    chat.send("only a map")
    assert violations(page) == []
    for view, shown in (("cache", ".model-title"), ("engine", ".models tr")):
        chat.open(view)
        expect(page.locator(shown).nth(1)).to_be_visible()
        assert violations(page) == []
