"""A proxy between a client and a server: it records what both say, and demands a tool call where one is asked for.

The model that comes with leftoff is too small to follow an agent's instructions. So where the last message of the user
names a tool that is offered (`read_note`), the proxy adds the `tool_choice` that makes the model call it, or search for
it first: the search's schema is narrowed to the one query. Elsewhere it forbids calls and demands a few words, lest the
model call tools at random, or never come to an end. All else is what the client sends.
"""

import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lab.clients.notes_mcp import TOOLS

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_MAX_REPLY_TOKENS = 200
_SEARCHES = ("ToolSearch", "tool_search")
_CALLS_FOUND = "tool_call"  # Qwen Code's tool that calls those that were found
_QUERY = "select:" + ",".join(f"mcp__notes__{tool['name']}" for tool in TOOLS)
NO_THOUGHT: list[list[Any]] = [["<think>", False]]
NO_CALL = [["<tool_call>", False], *NO_THOUGHT]
_FEW_WORDS = r"[A-Z][a-z]{1,8}( [a-z]{1,8}){2,6}\."
_METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"]
_NOT_FORWARDED = {"host", "content-length", "accept-encoding", "connection"}
_NOT_RETURNED = {"content-length", "transfer-encoding", "connection", "content-encoding", "date", "server"}
_REPLY_ID = re.compile(rb'"id":\s*"((?:chatcmpl-|cmpl-|msg_|resp_)\w+)"')
_ENDS = (b"data: [DONE]", b"event: message_stop", b"event: response.completed", b"event: response.incomplete")
Body = dict[str, Any]


@dataclass
class Exchange:
    """One request of a client and what the server answered. `body` is what was forwarded."""

    method: str
    path: str
    body: Body | None
    status: int = 0
    reply: bytes = b""
    kind: str = "aside"  # of the requests that are turns: begins, goes on, retells; of those that are no chat: alone

    @property
    def is_answered(self) -> bool:
        """Whether the model has replied, up to the end of its reply."""
        is_whole = not self.reply.startswith((b"event:", b"data:", b":")) or any(end in self.reply for end in _ENDS)
        return self.status == httpx.codes.OK and is_whole and bool(reply_id(self.reply))


def reply_id(reply: bytes) -> str:
    """The id under which GET /cache/requests has a reply; empty if nothing was generated."""
    found = _REPLY_ID.search(reply)
    return found[1].decode() if found else ""


@dataclass
class Tap:
    """Forwards to `target`, which may change when the server starts again elsewhere."""

    target: str
    exchanges: list[Exchange] = field(default_factory=list)
    url: str = ""

    def save(self, folder: Path) -> None:
        """One file for each request that asked the model something."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
        asked = [exchange for exchange in self.exchanges if exchange.body and exchange.is_answered]
        for number, one in enumerate(asked):
            said = {"kind": one.kind, "path": one.path, "body": one.body, "reply": one.reply.decode(errors="replace")}
            (folder / f"{number:03}.json").write_text(json.dumps(said, indent=1))

    async def forward(self, request: Request) -> Response:
        """Any request, streamed back as it is answered."""
        raw = await request.body()
        body = _parsed(raw)
        if body is not None:
            demand_reply(body)
            raw = json.dumps(body).encode()
        exchange = Exchange(request.method, request.url.path, body)
        self.exchanges.append(exchange)
        client = httpx.AsyncClient(timeout=None)
        headers = {key: value.strip() for key, value in request.headers.items() if key not in _NOT_FORWARDED}
        url = httpx.URL(self.target).copy_with(raw_path=_raw_path(request))
        answer = await client.send(client.build_request(request.method, url, headers=headers, content=raw), stream=True)
        exchange.status = answer.status_code

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    exchange.reply += piece
                    yield piece
            finally:
                await answer.aclose()
                await client.aclose()

        kept = {key: value for key, value in answer.headers.items() if key not in _NOT_RETURNED}
        return StreamingResponse(pieces(), answer.status_code, kept)


@contextmanager
def tapping(target: str) -> Iterator[Tap]:
    """A proxy that listens at `Tap.url`."""
    tap = Tap(target)
    app = Starlette(routes=[Route("/{path:path}", tap.forward, methods=_METHODS)])
    listener = socket.create_server(("127.0.0.1", 0))
    tap.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield tap
    finally:
        server.should_exit = True
        thread.join()


def demand_reply(body: Body) -> None:
    """Says what the reply must be: a call of a tool, or else a few words."""
    if "thinking" in body:
        body["thinking"] = {"type": "disabled"}
    for tool in body.get("tools") or ():
        _narrow(tool.get("function") or tool)
    if demand_tool(body):
        body["logit_bias"] = NO_THOUGHT
    elif body.get("tools") and body.get("tool_choice") != "required":
        body |= {"logit_bias": NO_CALL, "guided_regex": _FEW_WORDS}
    limit_reply(body)


def _narrow(tool: Body) -> None:
    """Leaves the model no choice but the notes where it searches for tools, or calls one that was found."""
    schema: Body = tool.get("input_schema") or tool.get("parameters") or {}
    if tool.get("name") in _SEARCHES:
        schema["properties"] = {"query": {"enum": [_QUERY]}, "max_results": {"enum": [5]}}
    if tool.get("name") == _CALLS_FOUND:
        note = TOOLS[0]
        schema["properties"] = {"name": {"enum": [f"mcp__notes__{note['name']}"]}, "arguments": note["inputSchema"]}


def limit_reply(body: Body) -> None:
    """Lowers the limit that the client has set, if it has set one that high."""
    for key in _LIMITS:
        if isinstance(body.get(key), int):
            body[key] = min(body[key], _MAX_REPLY_TOKENS)
    if "input" in body:
        body.setdefault("max_output_tokens", _MAX_REPLY_TOKENS)
    elif "messages" in body and not body.keys() & {*_LIMITS}:
        body["max_tokens"] = _MAX_REPLY_TOKENS


def demand_tool(body: Body) -> bool:
    """Makes the model call the tool that the last message of the user names, if it is offered; returns whether it did.

    A tool that must be searched for first is searched for.
    """
    said, results = json.dumps(_last_words(body)), _found_by_search(body)
    for tool in (tool["name"] for tool in TOOLS):
        if tool not in said and tool not in results:
            continue
        for name in offered(body):
            if name.endswith(tool) or (name == _CALLS_FOUND and tool in results):
                body["tool_choice"] = choice_of(body, name)
                return True
        if search := next((name for name in offered(body) if name in _SEARCHES), None):
            body["tool_choice"] = choice_of(body, search)
            return True
    return False


def _last_words(body: Body) -> object:
    """The last message if it is the user's own words, and no tool's result. Claude Code's system message may follow.

    Reminders of Qwen Code's, which name all tools, are no such words.
    """
    spoken = body.get("messages") or body.get("input")
    if not isinstance(spoken, list):
        return spoken
    last: Body = next((one for one in reversed(spoken) if one.get("role") not in ("system", "developer")), {})
    content = last.get("content")
    if isinstance(content, list):
        parts = [part for part in content if part.get("type") != "tool_result"]
        content = [part for part in parts if not str(part.get("text")).startswith("<system-reminder>")]
    return content if last.get("role") == "user" else ""


def _found_by_search(body: Body) -> str:
    """The tools that a search has found, if its result is the last message."""
    last = [one for one in body.get("messages") or [{}] if one.get("role") != "system"][-1]
    found = [part for part in _parts(last) if "tool_reference" in json.dumps(part)]
    return json.dumps(found or last if last.get("role") == "tool" and "<functions>" in json.dumps(last) else found)


def _parts(message: Body) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def offered(body: Body) -> list[str]:
    """The names of all tools; those in a namespace of Codex as the server shows them to the model."""
    found = []
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            found += [f"{tool['name']}__{one.get('name')}" for one in tool["tools"]]
        else:
            found.append((tool.get("function") or tool).get("name", ""))
    return found


def choice_of(body: Body, name: str) -> Body:
    """The field `tool_choice` in the words of the dialect: Anthropic's, Responses', or that of Chat Completions."""
    if any("input_schema" in tool for tool in body["tools"]):
        return {"type": "tool", "name": name}
    if "input" in body:
        return {"type": "function", "name": name}
    return {"type": "function", "function": {"name": name}}


def _parsed(raw: bytes) -> Body | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _raw_path(request: Request) -> bytes:
    query = request.url.query
    return request.url.path.encode() + (f"?{query}".encode() if query else b"")
