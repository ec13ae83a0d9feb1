"""The parts of a reply on the wire, in any dialect: texts, thoughts, calls and ids, by names such as `text0`.

Clients send these parts back with the next turn. The same names for the same parts let a recording say which part of
which reply stands where, so that it can be played again with other replies.
"""

import json
from collections.abc import Iterator
from typing import Any

_TEXTS = ("text", "thinking", "content", "reasoning_content", "signature", "encrypted_content")
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
Parts = dict[str, Any]


def parts_of(reply: str) -> Parts:
    """Reads a whole JSON answer, or the events of a stream."""
    numbers: dict[str, int] = {}
    parts: Parts = {}
    for name, value in _named(_message(reply)):
        number = numbers.get(name, 0)
        numbers[name] = number + 1
        if name == "arguments":
            parts |= _arguments(number, value)
        else:
            parts[f"{name}{number}"] = value
    return parts


def _arguments(number: int, written: str) -> Parts:
    """The arguments of a call as the model wrote them, and as clients may write them again."""
    value = json.loads(written)
    return {
        f"arguments{number}": written,
        f"compact{number}": json.dumps(value, separators=(",", ":"), ensure_ascii=False),
        f"spaced{number}": json.dumps(value, ensure_ascii=False),
        f"input{number}": value,
    }


def _named(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Every id, text and argument in the message, in its order."""
    if isinstance(value, list):
        for item in value:
            yield from _named(item)
    if not isinstance(value, dict):
        return
    if "name" in value and value.keys() & {"arguments", "input"}:
        yield "tool", f"{value['namespace']}__{value['name']}" if value.get("namespace") else value["name"]
    for key, inner in value.items():
        if key in ("id", "call_id", *_TEXTS) and isinstance(inner, str):
            if inner:
                yield key.removesuffix("_content"), inner
        elif key == "arguments":
            yield "arguments", inner
        elif key == "input" and value.get("type") == "tool_use":
            yield "arguments", json.dumps(inner)
        else:
            yield from _named(inner)


def _message(reply: str) -> Any:  # noqa: ANN401
    """What the model said, as the dialect has it whole."""
    if reply.lstrip().startswith("{"):
        answer = json.loads(reply)
        return answer.get("choices") or answer.get("content") or {"id": answer["id"], "output": answer["output"]}
    data = (line[5:].strip() for line in reply.splitlines() if line.startswith("data:"))
    events = [json.loads(text) for text in data if text != "[DONE]"]
    if any(event.get("type", "").startswith("response.") for event in events):
        whole = events[-1]["response"]
        return {"id": whole["id"], "output": whole["output"]}
    if any(event.get("object") == "chat.completion.chunk" for event in events):
        return _chat(events)
    return _blocks(events)


def _chat(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, str]] = {}
    for delta in (choice["delta"] for event in events for choice in event.get("choices", ())):
        for key in ("content", "reasoning_content"):
            message[key] = message.get(key, "") + (delta.get(key) or "")
        for call in delta.get("tool_calls") or ():
            whole = calls.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            whole["id"] += call.get("id") or ""
            for key in ("name", "arguments"):
                whole[key] += call["function"].get(key) or ""
    return {**message, "calls": [*calls.values()]}


def _blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content blocks of Anthropic's dialect."""
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                blocks[index] = {**block, "input": ""} if block["type"] == "tool_use" else {**block}
            case {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", **delta}}:
                blocks[index]["input"] += delta["partial_json"]
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                key = _DELTAS[delta["type"]]
                blocks[index][key] = blocks[index].get(key, "") + delta[key]
    for block in blocks.values():
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"] or "{}")
    return [*blocks.values()]
