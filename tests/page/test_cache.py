"""The cache's view: it shows what the server holds, as it changes, and changes it."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from leftoff.host.host import ModelHost
from tests.cli.running import serving
from tests.page.chat import Chat

SYSTEM = {"role": "system", "content": "an old man keeps a lamp in his window " * 10}


def ask(http: httpx.Client, content: str) -> dict[str, Any]:
    body = {"messages": [SYSTEM, {"role": "user", "content": content}], "max_tokens": 4, "temperature": 0}
    reply: dict[str, Any] = http.post("/v1/chat/completions", json=body).json()
    return reply


def test_it_follows_what_other_clients_do(chat: Chat, page: Page, http: httpx.Client, host: ModelHost) -> None:
    chat.open("cache")
    expect(page.get_by_text("The cache is empty")).to_be_visible()
    before = host.log.counts["", host.name].reused_tokens
    ask(http, "where does the road end")
    ask(http, "only a map")
    requests = page.locator(".requests > ul > li")
    expect(requests).to_have_count(2)
    newest = http.get("/cache/requests?n=1").json()["requests"][0]
    share = round(100 * newest["reused"] / newest["prompt_tokens"])
    expect(requests.first).to_contain_text(f"python-httpx · {newest['prompt_tokens']} tokens, {share} % reused")
    expect(requests.first).to_contain_text("only a map")
    colours = page.locator(".requests header li")
    expect(colours).to_have_text(["live slot", "shared slot", "RAM", "disk", "shared store", "read ahead", "read now"])
    requests.first.locator("summary").click()
    detail = http.get(f"/cache/requests/{newest['id']}").json()
    rows = requests.first.locator(".messages tbody tr")
    expect(rows).to_have_count(len(detail["messages"]))
    for row, message in zip(rows.all(), detail["messages"], strict=True):
        assert row.locator("td").all_inner_texts()[:2] == [message["role"], f"{message['tokens']:,}"]
    (tree,) = http.get("/cache/tree").json()["trees"]
    expect(page.get_by_role("treeitem")).to_have_count(len(tree["nodes"]))
    spared = host.log.counts["", host.name].reused_tokens
    assert spared > before
    expect(page.locator(".gauges")).to_contain_text(f"{spared:,} tokens")
    page.get_by_role("link", name="Chat").click()
    expect(chat.composer).to_be_visible()


@pytest.mark.parametrize("meanwhile", ["/cache/requests?n=100", "/cache/tree?q="])
def test_a_request_that_ends_while_the_view_opens_is_shown_once(
    chat: Chat, page: Page, http: httpx.Client, meanwhile: str
) -> None:
    def answer(route: Route) -> None:
        ask(http, "where does the road end")
        route.continue_()

    page.route(f"{chat.url}{meanwhile}", answer, times=1)
    chat.open("cache")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    expect(page.locator(".requests > ul > li")).to_have_count(1)


def test_drafts_are_told_with_where_they_came_from(chat: Chat, page: Page, http: httpx.Client, host: ModelHost) -> None:
    ask(http, "where does the road end")
    (record, *_) = host.log.records
    host.log.add(replace(record, drafted=8, accepted=5, drafted_from={"sibling": 3, "reply": 2}))
    chat.open("cache")
    newest = page.locator(".requests > ul > li").first
    newest.locator("summary").click()
    told = "Drafts: 5 of 8 tokens were right: 3 from conversations with the same beginning, 2 from this reply."
    expect(newest).to_contain_text(told)


def test_each_client_is_told_by_name_and_its_conversations_are_found(
    chat: Chat, page: Page, http: httpx.Client, host: ModelHost
) -> None:
    before = {each["client"]: each for each in host.log.callers.shown("", 0)}
    for agent, words in (("claude-cli/2", "where does the road end"), ("codex_cli_rs/1", "only a map")):
        http.headers["user-agent"] = agent
        for _ in range(2):
            ask(http, words)
    chat.open("cache")
    claude = page.locator(".callers > ul > li", has_text="Claude Code")
    expect(page.locator(".callers > ul > li", has_text="Codex")).to_be_visible()
    sums = next(each for each in http.get("/cache/clients").json()["clients"] if each["client"] == "Claude Code")
    assert sums["requests"] == 2 + before.get("Claude Code", {"requests": 0})["requests"]
    share = round(100 * sums["reused"] / sums["prompt_tokens"])
    expect(claude).to_contain_text(f"{sums['requests']} requests · {sums['prompt_tokens']} tokens, {share} % reused")
    claude.locator("summary").click()
    talk = claude.locator(".talks li")
    expect(talk).to_have_count(1)
    expect(talk).to_contain_text("where does the road end")
    talk.get_by_role("button", name="Find where does the road end in the tree").click()
    expect(page.locator(".node.found")).to_be_in_viewport()
    expect(page.get_by_label("Search the cache by text")).to_have_value("where does the road end")


def test_conversations_that_begin_later_join_all_that_are_known(chat: Chat, page: Page, http: httpx.Client) -> None:
    http.headers["user-agent"] = "crowd/1"
    for number in range(21):  # one more than are shown at first
        ask(http, f"question {number}")
    chat.open("cache")
    client = page.locator(".callers > ul > li", has_text="crowd")
    client.locator("summary").click()
    client.get_by_role("button", name="All that are known").click()
    talks = client.locator(".talks li")
    expect(talks).to_have_count(21)
    ask(http, "one more")
    expect(talks).to_have_count(22)
    expect(talks.first).to_contain_text("one more")


def test_the_drawing_is_in_proportion(chat: Chat, page: Page, http: httpx.Client) -> None:
    for question in ("where does the road end", "only a map", "only a lamp"):
        ask(http, question)
    chat.open("cache")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    (tree,) = http.get("/cache/tree").json()["trees"]
    longest = max(node["end"] for node in tree["nodes"])
    total = page.get_by_role("tree").bounding_box()
    assert total is not None
    for node in tree["nodes"]:
        box = page.locator(f'[data-node="{node["id"]}"]').bounding_box()
        assert box is not None
        assert abs(box["x"] - total["x"] - total["width"] * node["start"] / longest) < 2
        assert abs(box["width"] + 1 - max(2, total["width"] * (node["end"] - node["start"]) / longest)) < 2
    page.get_by_role("button", name="Zoom in").click()
    wider = page.get_by_role("tree").bounding_box()
    assert wider is not None
    assert wider["width"] > 1.9 * total["width"]


def test_a_path_is_found_pinned_and_dropped(chat: Chat, page: Page, http: httpx.Client) -> None:
    ask(http, "where does the road end")
    ask(http, "only a map")
    chat.open("cache")
    page.get_by_label("Search the cache by text").fill("the road")
    found = page.locator(".node.found")
    expect(found).to_have_count(1)
    expect(page.get_by_text("found in 1 place")).to_be_visible()
    found.click()
    details = page.get_by_role("region", name="The chosen stretch")
    details.get_by_role("button", name="Pin", exact=True).click()
    expect(details.get_by_role("button", name="Unpin")).to_be_visible()
    expect(page.locator(".node.found .tick.pinned").first).to_be_attached()
    details.get_by_role("button", name="Unpin").click()
    expect(details.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    details.get_by_role("button", name="Drop").click()
    chat.agree("Drop")
    expect(found).to_have_count(0)


def test_what_is_typed_outlives_a_new_drawing(chat: Chat, page: Page, http: httpx.Client) -> None:
    ask(http, "where does the road end")
    chat.open("cache")
    expect(page.get_by_role("treeitem").first).to_be_visible()
    page.get_by_label("Search the cache by text").evaluate(
        """(field) => {
            field.value = "the road";
            field.dispatchEvent(new Event("input", { bubbles: true }));
            document.querySelector('[aria-label="Zoom in"]').click(); // draws before the search begins
        }"""
    )
    expect(page.locator(".node.found")).to_have_count(1)
    expect(page.get_by_label("Search the cache by text")).to_have_value("the road")


def test_a_server_that_is_gone_has_no_empty_cache(page: Page) -> None:
    with serving("--predict", "8") as server:
        chat = Chat(page, server.url)
        server.stop()
        page.get_by_role("link", name="Cache").click()
        expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.")
        expect(page.get_by_text("The cache is empty")).to_have_count(0)
        page.get_by_role("link", name="Engine").click()
        expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.")
    with serving("--predict", "8", "--port", str(httpx.URL(server.url).port)):
        expect(page.get_by_role("heading", name="Connect")).to_be_visible()
        page.get_by_role("link", name="Cache").click()
        expect(page.get_by_text("The cache is empty")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("link", name="Chat").click()
        chat.send("where does the road end")


def test_the_tree_is_walked_with_arrows(chat: Chat, page: Page, http: httpx.Client) -> None:
    ask(http, "where does the road end")
    ask(http, "only a map")
    chat.open("cache")
    page.get_by_role("treeitem").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator('[aria-selected="true"]')).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowDown")
    expect(page.locator('[aria-selected="true"]')).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator('[aria-selected="true"]')).to_have_attribute("aria-level", "1")
