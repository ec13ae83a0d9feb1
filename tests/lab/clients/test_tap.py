"""The proxy demands a tool where the user's last message names it, in every dialect, and nowhere else."""

from typing import Any

import pytest

from lab.clients.tap import demand_reply, demand_tool, reply_id

ASK = {"role": "user", "content": "Please call read_note for todo.txt."}
CHAT = {"type": "function", "function": {"name": "read_note"}}
ANTHROPIC = {"name": "mcp__notes__read_note", "input_schema": {"type": "object"}}
NAMESPACE = {"type": "namespace", "name": "mcp__notes", "tools": [{"type": "function", "name": "read_note"}]}


@pytest.mark.parametrize(
    ("body", "choice"),
    [
        ({"messages": [ASK], "tools": [CHAT]}, CHAT),
        ({"messages": [ASK], "tools": [ANTHROPIC]}, {"type": "tool", "name": "mcp__notes__read_note"}),
        (
            {"messages": [ASK, {"role": "system", "content": "Be kind."}], "tools": [ANTHROPIC]},
            {"type": "tool", "name": "mcp__notes__read_note"},
        ),
        ({"input": [ASK], "tools": [NAMESPACE]}, {"type": "function", "name": "mcp__notes__read_note"}),
    ],
)
def test_a_tool_that_is_named_is_demanded(body: dict[str, Any], choice: dict[str, Any]) -> None:
    assert demand_tool(body)
    assert body["tool_choice"] == choice


def test_a_tool_that_is_not_offered_yet_is_searched_for_and_then_called() -> None:
    search = {"name": "ToolSearch", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}}}
    body: dict[str, Any] = {"messages": [ASK], "tools": [search], "thinking": {"type": "adaptive"}}
    demand_reply(body)
    assert body["tool_choice"] == {"type": "tool", "name": "ToolSearch"}
    assert "select:mcp__notes__read_note" in body["tools"][0]["input_schema"]["properties"]["query"]["enum"][0]
    found = {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "mcp__notes__read_note"}]}
    then: dict[str, Any] = {"messages": [ASK, {"role": "user", "content": [found]}], "tools": [search, ANTHROPIC]}
    demand_reply(then)
    assert then["tool_choice"] == {"type": "tool", "name": "mcp__notes__read_note"}


def test_qwen_code_searches_for_a_tool_and_calls_it_through_another() -> None:
    names = ("tool_search", "tool_call")
    tools: list[dict[str, Any]] = [{"function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    reminder = {"type": "text", "text": "<system-reminder>\n- mcp__notes__read_note\n</system-reminder>"}
    body: dict[str, Any] = {"messages": [ASK], "tools": tools}
    demand_reply(body)
    assert body["tool_choice"]["function"]["name"] == "tool_search"
    found = {"role": "tool", "content": '<functions>\n{"name": "mcp__notes__read_note"}\n</functions>'}
    then: dict[str, Any] = {"messages": [ASK, found], "tools": tools}
    demand_reply(then)
    assert then["tool_choice"]["function"]["name"] == "tool_call"
    assert tools[1]["function"]["parameters"]["properties"]["name"]["enum"] == ["mcp__notes__read_note"]
    words = {"role": "user", "content": [reminder, {"type": "text", "text": "Hello!"}]}
    assert not demand_tool({"messages": [words], "tools": tools}), "a reminder asks for nothing"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ASK]},
        {"messages": [ASK, {"role": "assistant", "content": "Yes."}], "tools": [CHAT]},
        {"messages": [{"role": "user", "content": "Hello!"}], "tools": [CHAT]},
        {
            "messages": [{"role": "user", "content": [{"type": "tool_result", "content": "read_note"}]}],
            "tools": [ANTHROPIC],
        },
        {"prompt": "read_note"},
    ],
)
def test_all_else_passes_unchanged(body: dict[str, Any]) -> None:
    before = {**body}
    assert not demand_tool(body)
    assert body == before


def test_the_id_of_a_reply_is_found() -> None:
    assert reply_id(b'data: {"type": "message_start", "message": {"id": "msg_0a1b"}}') == "msg_0a1b"
    assert reply_id(b'{"error": {"message": "no"}}') == ""
