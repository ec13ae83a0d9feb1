"""A small MCP server on standard input and output, with tools for agents to call. It needs nothing but Python.

python lab/clients/notes_mcp.py
"""

import json
import sys
from typing import Any

NOTES = {
    "todo.txt": "Buy bread, water the plants, and call Clara about the room on Monday.",
    "plan.txt": "First the roof, then the windows, then the garden. Hugo brings the ladder on Friday.",
}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "read_note",
        "description": "Reads one of the user's notes.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "enum": [*NOTES], "description": "The name of the note."}},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    {
        "name": "take_screenshot",
        "description": "Takes a picture of the user's screen.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]
# A PNG of 8 by 8 grey dots.
SCREENSHOT = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR4nGNogAIGyhgAgIQgAQ2AJGEAAAAASUVORK5CYII="


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], **_answer(request["method"], request.get("params") or {})}
            print(json.dumps(answer), flush=True)


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            served = {"name": "notes", "version": "1.0"}
            version = params.get("protocolVersion", "2025-06-18")
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": served}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return {"result": {"content": [_called(params["name"], params.get("arguments") or {})]}}
        case _:
            return {"error": {"code": -32601, "message": f"there is no method {method}"}}


def _called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "take_screenshot":
        return {"type": "image", "data": SCREENSHOT, "mimeType": "image/png"}
    note = NOTES.get(arguments.get("name", ""))
    return {"type": "text", "text": note or f"there is no such note: {arguments.get('name')}"}


if __name__ == "__main__":
    main()
