"""Every request says who sent it: in the log without words of the conversation, in its report with the first."""

import logging

import httpx
import pytest

REMINDER = "<system-reminder>\nToday is Tuesday.\n</system-reminder>\n"


def report(http: httpx.Client, agent: str, path: str, *texts: str, **fields: object) -> dict[str, object]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    body = {"model": "tiny", "messages": messages, "max_tokens": 2, **fields}
    http.post(path, json=body, headers={"User-Agent": agent}).raise_for_status()
    newest: dict[str, object] = http.get("/cache/requests?n=1").json()["requests"][0]
    return newest


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-cli/2.0.14 (external, cli)", "Claude Code"),
        ("codex_cli_rs/0.50.0 (Debian 13)", "Codex"),
        ("QwenCode/0.24.4 (linux; arm64)", "Qwen Code"),
        ("Charm-Crush/1.0 (https://charm.land/crush)", "Crush"),
        ("AsyncOpenAI/Python 2.1.0", "OpenAI SDK"),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.64", "AI SDK"),
        ("ai-sdk/anthropic/3.0.138", "AI SDK"),
        ("Zed/0.200", "Zed"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "browser"),
        ("(no name)", "unknown client"),
        ("", "unknown client"),
    ],
)
def test_clients_have_the_names_that_people_know(http: httpx.Client, agent: str, name: str) -> None:
    assert report(http, agent, "/v1/chat/completions", "only a map")["client"] == name


def test_the_turns_of_a_conversation_share_a_name(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    agent = "claude-cli/2.0.14 (external, cli)"
    first = report(http, agent, "/v1/messages", f"{REMINDER}where does the\nroad end")
    second = report(http, agent, "/v1/messages", f"{REMINDER}where does the\nroad end", "there", "and then")
    other = report(http, agent, "/v1/messages", "only a map")
    assert (first["route"], first["title"]) == ("/v1/messages", "where does the road end")
    assert first["conversation"] == second["conversation"] != other["conversation"]
    assert first["saved_ms"] == 0
    assert float(str(second["saved_ms"])) > 0
    line = caplog.messages[-2]
    assert line.startswith(f"Claude Code · /v1/messages · conversation {second['conversation']} · reused ")
    assert "road" not in line, "the log has no words of conversations"


def test_conversations_of_codex_are_told_apart(http: httpx.Client) -> None:
    """Each begins with the rules and the folder, in messages of the user's; an image is named in a tag."""
    rules = "# AGENTS.md instructions for /home/anna\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>"
    context = "<environment_context>\n  <cwd>/home/anna</cwd>\n</environment_context>"

    def asked(*texts: str) -> tuple[object, object]:
        words = [{"role": "user", "content": text} for text in (rules, context, texts[0])]
        roles = ("assistant", "user")
        words += [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts[1:])]
        body = {"model": "tiny", "input": words, "max_output_tokens": 2}
        http.post("/v1/responses", json=body, headers={"User-Agent": "codex_exec/0.169.0"}).raise_for_status()
        (newest,) = http.get("/cache/requests?n=1").json()["requests"]
        return newest["conversation"], newest["title"]

    first = asked('<image name=[Image #1] path="map.png"></image>where does the road end')
    again = asked('<image name=[Image #1] path="map.png"></image>where does the road end', "there", "and then")
    assert first == again
    assert first[1] == "where does the road end"
    assert asked("only a map")[0] != first[0]


def test_conversations_of_qwen_code_are_told_apart(http: httpx.Client) -> None:
    """Each begins with the folder, in a message of the user's to which it writes the reply itself."""
    setup = "This is the Qwen Code. We are setting up the context for our chat.\nToday is Tuesday.\n/home/anna"

    def asked(*texts: str) -> dict[str, object]:
        return report(http, "QwenCode/0.15.10 (linux; x64)", "/v1/chat/completions", setup, "Got it.", *texts)

    first, again = asked("where does the road end"), asked("where does the road end", "there", "and then")
    assert first["title"] == "where does the road end"
    assert first["conversation"] == again["conversation"] != asked("only a map")["conversation"]
    alone = report(http, "QwenCode/0.15.10", "/v1/chat/completions", setup)
    assert str(alone["title"]).startswith("This is the Qwen Code.")


def test_a_raw_prompt_has_no_conversation(http: httpx.Client) -> None:
    http.post("/completion", json={"prompt": "only a map", "n_predict": 1}, headers={"User-Agent": "curl/8.5.0"})
    (newest,) = http.get("/cache/requests?n=1").json()["requests"]
    assert [newest[name] for name in ("client", "route", "conversation", "title")] == ["curl", "/completion", "", ""]


@pytest.mark.parametrize(("path", "num_images"), [("/v1/chat/completions", 2), ("/v1/messages", 3)])
def test_an_image_that_is_left_out_is_told(
    http: httpx.Client, path: str, num_images: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says the same thing once."""
    caplog.set_level(logging.INFO, "leftoff.requests")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    content = [{"type": "text", "text": f"what is this, {path}"}, *[image] * num_images]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 2}
    http.post(path, json=body).raise_for_status()
    (newest,) = http.get("/cache/requests?n=1").json()["requests"]
    note = f"parts left out, since this model reads text only: {num_images} of type image"
    assert note in newest["notes"]
    assert note in caplog.messages[-1]
