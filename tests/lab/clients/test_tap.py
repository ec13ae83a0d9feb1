"""The proxy demands a tool where the user's last message names it, in every dialect, and nowhere else."""

from typing import Any

import pytest

from lab.clients.tap import demand_tool, reply_id

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
