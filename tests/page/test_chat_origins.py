"""The colours are true: what the page shows for each message is what the server says, number by number."""

import json
from collections import Counter
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.cli.running import serving
from tests.page.chat import Chat
from tests.patience import PATIENCE_S, until

SYSTEM = "an old man keeps a lamp in his window and waits for the ships " * 6
KEPT = {"live": "live", "shared": "shared", "RAM": "ram", "disk": "disk", "read ahead": "ahead"}

REASONS = {
    "new": "new",
    "edited": "changed, or after a change",
    "past the last snapshot": "known, but after the last place to go on from",
}


def check(chat: Chat, http: httpx.Client, reply: Locator) -> Counter[str]:
    """Compares a reply's bar and what each message shows with the server's records; returns the tokens by origin."""
    report = http.get("/cache/requests?n=1").json()["requests"][0]
    listed = http.get(f"/cache/requests/{report['id']}").json()["messages"]
    assert chat.origins(reply) == [message["origins"] for message in listed]
    told: Counter[str] = Counter()
    for message in listed:
        told.update(message["origins"])
    assert told == report["origins"]
    colours: Counter[str] = Counter()
    for origin, tokens in report["origins"].items():
        colours[KEPT.get(origin, "now")] += tokens
    assert chat.bar(reply) == colours
    assert sum(told[origin] for origin in KEPT) == report["reused"]
    assert {origin: told[origin] for origin in told if origin not in KEPT} == report["reasons"]
    expect(reply).to_contain_text(f"{report['reused']:,} of {report['prompt_tokens']:,} tokens reused")
    return told


def test_a_conversation_with_an_edit_a_branch_a_second_client_and_a_restart(page: Page, tmp_path: Path) -> None:
    flags = ("--disk", "64", "--cache-dir", str(tmp_path), "--predict", "8", "--temp", "0")
    with serving(*flags) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        chat = Chat(page, server.url)
        chat.set(system=SYSTEM)
        first = check(chat, http, chat.send("where does the road end"))
        assert set(first) == {"new"}
        second = check(chat, http, chat.send("only a map"))
        assert second["live"] + second["read ahead"] > first["new"]

        edited = check(chat, http, chat.edit(2, "only a lamp and the river"))
        assert sum(edited[origin] for origin in KEPT) > 0

        others = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "who are you"}]
        reply = http.post("/v1/chat/completions", json={"messages": others, "max_tokens": 4}).json()
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0

        chat.messages.nth(2).get_by_role("button", name="Previous branch").click()
        expect(chat.messages.nth(2)).to_contain_text("only a map")
        back = check(chat, http, chat.send("and then"))
        assert sum(back[origin] for origin in KEPT) > second["live"]
        chat.act(chat.replies.last, "Regenerate")
        expect(chat.messages.last).to_contain_text("2 / 2")
        check(chat, http, chat.finished())
        assert until(lambda: all(slot["is_saved"] for slot in http.get("/cache").json()["slots"]))
        port = httpx.URL(server.url).port
        server.stop()
    with serving(*flags, "--port", str(port)) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        after = check(chat, http, chat.send("once more"))
        assert after["disk"] > first["new"]


def test_what_differs_is_shown_with_both_texts(chat: Chat, http: httpx.Client) -> None:
    chat.set(system=SYSTEM)
    chat.send("where does the road end")
    chat.set(system=SYSTEM.replace("lamp", "map", 1))
    reply = chat.send("where does the road end")
    report = http.get("/cache/requests?n=1").json()["requests"][0]
    assert report["before"]
    reply.locator(".origins").click()
    details = reply.locator(".report")
    for text in (report["before"], report["after"]):
        assert json.dumps(text.split()[0])[1:-1] in details.inner_text()
    for reason, tokens in report["reasons"].items():
        expect(details).to_contain_text(f"{tokens} {REASONS[reason]}")
    reply.locator(".origins").click()
    expect(details).to_have_count(0)


def test_times_are_those_of_the_server(chat: Chat, http: httpx.Client) -> None:
    reply = chat.send("where does the road end")
    report = http.get("/cache/requests?n=1").json()["requests"][0]
    shown = reply.locator(".numbers").inner_text()
    ms = report["first_token_ms"]
    assert f"first token after {round(ms)} ms" in shown if ms < 1000 else " s" in shown
    assert "tokens/s" in shown
