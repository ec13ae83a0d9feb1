"""Responses requests as chats: items become messages. The items of one reply become one message again.

The model sees a function of a namespace, such as an MCP server, under one name made of both. A call has both again.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

from leftoff.server.http.body import convert
from leftoff.server.http.errors import ApiError, bad_field, missing_field, not_yet
from leftoff.server.request.content import TEXT_PARTS, Attached, ForeignPart, Part, joined
from leftoff.server.request.fields import (
    MAX_TOOLS,
    ChatRequest,
    ForeignFormat,
    FunctionCall,
    Message,
    Role,
    ToolCall,
    chat_body,
    function_tool,
)
from leftoff.server.responses.types import InputItem, ResponsesRequest, TextFormat

_ROLES = get_args(Role)
_TEXT_PARTS = TEXT_PARTS | {"reasoning_text", "summary_text"}
_WRAPPED = "leftoff:"
_NO_NAMESPACE = ("", "functions")  # that of functions outside of any
_JOINT = "__"

Find = Callable[[str], InputItem | None]  # an item that was stored, by its id


class Items:
    """The messages that a list of items stands for, and the items, with those that were named by their ids."""

    def __init__(self, wanted: str | list[InputItem] | None, place: str = "input", find: Find = lambda _: None) -> None:
        self.messages: list[Message] = []
        self.items: list[InputItem] = []
        self._find = find
        self._reply: Message | None = None  # the assistant's, while more items may belong to it
        items = [InputItem(role="user", content=wanted)] if isinstance(wanted, str) else wanted
        for index, item in enumerate(items or ()):
            self._add(item, f"{place}[{index}]")

    def _add(self, item: InputItem, place: str) -> None:
        if item.type == "item_reference":
            item = self._found(item.id or "", place)
        self.items.append(item)
        match item.type:
            case "message":
                self._add_message(item, place)
            case "reasoning":
                if thoughts := _thoughts(item, place):
                    reply = self._begun_reply()
                    reply.reasoning_content = (reply.reasoning_content or "") + thoughts
            case "function_call":
                reply = self._begun_reply()
                reply.tool_calls = [*(reply.tool_calls or ()), _call(item, place)]
            case "function_call_output":
                output = _content(item.output if item.output is not None else "", f"{place}.output")
                self._push(Message("tool", output, tool_call_id=item.call_id))
            # other types come from tools that only OpenAI's servers run

    def _found(self, name: str, place: str) -> InputItem:
        found = self._find(name)
        if found is None:
            problem = f"there is no item {name!r} here: it was not stored, or is forgotten. Send the item itself"
            raise ApiError(404, f"{place}.id: {problem}", param=f"{place}.id", code="item_not_found")
        return found

    def _add_message(self, item: InputItem, place: str) -> None:
        content = _content(item.content, f"{place}.content")
        if item.role not in _ROLES:
            raise bad_field(f"{place}.role", f"is {item.role!r}: must be one of {', '.join(_ROLES)}")
        if item.role == "assistant":
            if self._reply and self._reply.content:
                self._reply = None
            self._begun_reply().content = content
        else:
            self._push(Message(cast(Role, item.role), content))

    def _push(self, message: Message) -> None:
        self.messages.append(message)
        self._reply = None

    def _begun_reply(self) -> Message:
        if self._reply is None:
            self._reply = Message("assistant", "")
            self.messages.append(self._reply)
        return self._reply


@dataclass(frozen=True)
class Function:
    """A function that the client runs: its own name and namespace, and the tool as the model sees it."""

    name: str
    namespace: str
    place: str  # in the request
    tool: dict[str, Any]

    @property
    def flat_name(self) -> str:
        return flat_name(self.namespace, self.name)


def flat_name(namespace: str | None, name: str) -> str:
    """One name for a function of a namespace, joined as MCP clients do: `mcp__tides__next_high`."""
    if namespace is None or namespace in _NO_NAMESPACE:
        return name
    return namespace.removesuffix(_JOINT) + _JOINT + name


def functions_of(body: ResponsesRequest) -> list[Function]:
    """The functions of a request, also those in namespaces. Tools of other types are skipped."""
    functions = [*_functions(body.tools or [], "tools")]
    if len(functions) > MAX_TOOLS:
        raise bad_field("tools", f"has {len(functions)} functions: must be at most {MAX_TOOLS}")
    return functions


def as_chat(body: ResponsesRequest, messages: list[Message], functions: list[Function]) -> ChatRequest:
    """The request as a chat with these messages and functions."""
    _refuse(body)
    return chat_body(
        body,
        messages=[*([Message("system", body.instructions)] if body.instructions else ()), *messages],
        tools=[function.tool for function in functions] or None,
        skipped_tools=[str(tool.get("name") or tool.get("type")) for tool in body.tools or () if _is_skipped(tool)],
        tool_places={function.flat_name: f"{function.place}.parameters" for function in functions},
        tool_choice=_flat_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        max_tokens=body.max_output_tokens if body.max_output_tokens is not None else body.max_tokens,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        response_format=_format(body.text.format) if body.text and body.text.format else body.response_format,
        chat_template_kwargs=body.chat_template_kwargs,
    )


def wrapped(thoughts: str) -> str:
    """Reasoning as `encrypted_content`, which clients send back as it is. It is not secret: the client has the text."""
    return _WRAPPED + base64.b64encode(thoughts.encode()).decode()


def _unwrapped(content: str) -> str:
    """The reasoning in `encrypted_content`; empty if another server encrypted it."""
    if not content.startswith(_WRAPPED):
        return ""
    try:
        return base64.b64decode(content.removeprefix(_WRAPPED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _thoughts(item: InputItem, place: str) -> str:
    if item.content:
        return _text(item.content, f"{place}.content")
    return _unwrapped(item.encrypted_content or "") or _text(item.summary or [], f"{place}.summary")


def _call(item: InputItem, place: str) -> ToolCall:
    if not item.name:
        raise missing_field(f"{place}.name")
    name = flat_name(item.namespace, item.name)
    return ToolCall(FunctionCall(name, item.arguments or ""), item.call_id, "function")


def _text(content: Any, place: str) -> str:  # noqa: ANN401
    found = _content(content, place)
    return found if isinstance(found, str) else Attached().text(found, place)


def _content(content: Any, place: str) -> str | list[Part]:  # noqa: ANN401
    parts: str | list[Part] = convert(content, str | list[Part], place)
    return parts if isinstance(parts, str) else joined(_placed(part, f"{place}[{at}]") for at, part in enumerate(parts))


def _placed(part: Part, place: str) -> str | ForeignPart:
    if part.type in _TEXT_PARTS:
        return part.text or part.refusal or ""
    return ForeignPart(part.type, image_url=part.image_url, file_data=part.file_data or part.file_url, place=place)


def _is_skipped(tool: dict[str, Any]) -> bool:
    return tool.get("type") not in ("function", "namespace")


def _functions(tools: list[dict[str, Any]], place: str) -> Iterator[Function]:
    for index, tool in enumerate(tools):
        at = f"{place}[{index}]"
        if tool.get("type") == "function":
            yield _function(tool, "", at)
        elif tool.get("type") == "namespace":
            inner: list[dict[str, Any]] = convert(tool.get("tools") or [], list[dict[str, Any]], f"{at}.tools")
            namespace = _name(tool, at)
            for number, one in enumerate(inner):
                if one.get("type") == "function":
                    yield _function(one, namespace, f"{at}.tools[{number}]")


def _function(tool: dict[str, Any], namespace: str, place: str) -> Function:
    name, description, parameters = _name(tool, place), tool.get("description"), tool.get("parameters")
    if not isinstance(parameters or {}, dict):
        raise bad_field(f"{place}.parameters", "must be an object")
    shown = function_tool(flat_name(namespace, name), str(description) if description else None, parameters)
    return Function(name, namespace, place, shown)


def _name(tool: dict[str, Any], place: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise bad_field(f"{place}.name", "must be a text")
    return name


def _flat_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """The choice by the names that the model sees, whether it names one function or lists several."""

    def flat(one: Any) -> Any:  # noqa: ANN401
        is_named = isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("namespace"), str)
        return {**one, "name": flat_name(one["namespace"], one["name"])} if is_named else one

    if isinstance(choice, dict) and isinstance(choice.get("tools"), list):
        return {**choice, "tools": [*map(flat, choice["tools"])]}
    chosen: str | dict[str, Any] | None = flat(choice)
    return chosen


def _format(wanted: TextFormat) -> ForeignFormat:
    return ForeignFormat(wanted.type, schema=wanted.schema, place="text.format")


def _refuse(body: ResponsesRequest) -> None:
    """Refuse unsupported features, rather than reply without them."""
    for name, instead in (
        ("background", "leave it out, and stream"),
        ("prompt", "use instructions and input"),
        ("top_logprobs", "use /v1/chat/completions"),
    ):
        if value := getattr(body, name):
            raise not_yet(name, value, instead)
