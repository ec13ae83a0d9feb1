"""Recordings: no words of the captured texts, the forms that rules match, references to replies, equal files."""

import json
import re
from pathlib import Path
from typing import Any

from lab.clients.record import disguise, read, recorded, write
from leftoff.chat.header_rules import Rules
from leftoff.config import AGENTS, BILLING_LINE

BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"
GIT = (
    "gitStatus: This is the git status at the start of the conversation. It stays.\n\nCurrent branch: main\n\n"
    "Status:\n M story.txt\n\nRecent commits:\nabc1234 Write chapter 1"
)
SYSTEM = f"{BILLING}\nYou are a Secretive agent that never discloses anything.\n\n{GIT}"
TOOL = {"name": "read_note", "description": "Opens the notebook.", "input_schema": {"type": "object"}}


def captured() -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read_note", "input": {"name": "todo.txt"}}
    said = {"id": "msg_1", "content": [{"type": "text", "text": "Let me look."}, call]}
    question = {"role": "user", "content": "Please look into it."}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Buy bread."}]}
    body = {"system": SYSTEM, "tools": [TOOL], "max_tokens": 32000}
    turns = ([question], [question, {"role": "assistant", "content": said["content"]}, answer])
    return [
        {"kind": kind, "path": "/v1/messages", "body": {**body, "messages": messages}, "reply": json.dumps(said)}
        for kind, messages in zip(("begins", "goes on"), turns, strict=True)
    ]


def test_words_become_others_of_the_same_length() -> None:
    text = "You are an Agent.\n- Never disclose 42 passwords!"
    other = disguise(text)
    assert [len(word) for word in other.split()] == [len(word) for word in text.split()]
    assert not {*re.findall(r"\w{4,}", text)} & {*re.findall(r"\w{4,}", other)}
    assert re.sub(r"\w", "", other) == re.sub(r"\w", "", text)
    assert len(disguise("word " * 1000, 0.1)) < 600


def test_what_rules_match_keeps_its_form() -> None:
    body = recorded(captured())[0].body
    assert "Secretive" not in str(body)
    assert "discloses" not in str(body)
    assert "notebook" not in str(body)
    messages = [{"role": "system", "content": body["system"]}, {"role": "user", "content": "Hello"}]
    applied = Rules(drop=[BILLING_LINE], move=[AGENTS]).apply(messages, "")
    assert applied.moved == (GIT,)
    assert BILLING not in str(applied.messages)


def test_parts_of_replies_become_references() -> None:
    _, (_, assistant, result) = (request.body["messages"] for request in recorded(captured()))
    assert assistant["content"][0]["text"] == {"$reply": [0, "text0"]}
    assert assistant["content"][1]["input"] == {"$reply": [0, "input0"]}
    assert assistant["content"][1]["id"] == result["content"][0]["tool_use_id"] == {"$reply": [0, "id0"]}


def test_of_many_tools_those_that_are_called_stay() -> None:
    names = ("list", "open", "save", "read_note", "final_answer")
    reply = {"id": "msg_1", "content": [{"type": "tool_use", "id": "toolu_1", "name": "final_answer", "input": {}}]}
    body = {"messages": [], "tools": [{**TOOL, "name": name} for name in names]}
    capture = {"kind": "begins", "path": "/v1/messages", "body": body, "reply": json.dumps(reply)}
    (request,) = recorded([capture])
    assert [tool["name"] for tool in request.body["tools"]] == ["read_note", "final_answer"]
    assert request.body["tool_choice"]["name"] == "final_answer"


def test_a_request_that_stands_alone_stays_as_it_is() -> None:
    body = {"prompt": [[17, 4]], "max_tokens": 1, "logprobs": 1, "echo": True}
    reply = {"id": "cmpl-1", "choices": [{"text": "So be it."}]}
    capture = {"kind": "alone", "path": "/v1/completions", "body": body, "reply": json.dumps(reply)}
    assert [request.body for request in recorded([capture, capture])] == [body, body]


def test_a_recording_is_read_as_it_was_written_and_is_the_same_each_time(tmp_path: Path) -> None:
    recording = recorded(captured())
    for name in ("one.json", "two.json"):
        write(recorded(captured()), tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert read(tmp_path / "one.json") == recording
