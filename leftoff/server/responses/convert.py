"""Responses requests as chats: items become messages. The items of one reply become one message again."""

import base64
import binascii
from typing import Any, get_args

import msgspec

from leftoff.server.http.body import convert
from leftoff.server.http.errors import bad_field, missing_field, not_yet
from leftoff.server.request.fields import (
    TEXT_PARTS,
    ChatRequest,
    FunctionCall,
    Message,
    Part,
    ResponseFormat,
    Role,
    ToolCall,
    chat_body,
    function_tool,
    response_format,
    text_of,
)
from leftoff.server.responses.types import InputItem, ResponsesRequest, TextFormat

_ROLES = get_args(Role)
_TEXT_PARTS = TEXT_PARTS | {"reasoning_text", "summary_text"}
_WRAPPED = "leftoff:"


class Items:
    """The messages that a list of items stands for."""

    def __init__(self, wanted: str | list[InputItem] | None) -> None:
        self.messages: list[Message] = []
        self._reply: Message | None = None  # the assistant's, while more items may belong to it
        items = [InputItem(role="user", content=wanted)] if isinstance(wanted, str) else wanted
        for index, item in enumerate(items or ()):
            self._add(item, f"input[{index}]")

    def _add(self, item: InputItem, place: str) -> None:
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
                text = _text(item.output if item.output is not None else "", f"{place}.output")
                self._push(Message("tool", text, tool_call_id=item.call_id))
            case "item_reference":
                raise not_yet(f"{place}.type", item.type, "send the item itself, or use previous_response_id")
            # other types come from tools that only OpenAI's servers run

    def _add_message(self, item: InputItem, place: str) -> None:
        text = _text(item.content, f"{place}.content")
        if item.role not in _ROLES:
            raise bad_field(f"{place}.role", f"is {item.role!r}: must be one of {', '.join(_ROLES)}")
        if item.role == "assistant":
            if self._reply and self._reply.content:
                self._reply = None
            self._begun_reply().content = text
        else:
            self._push(msgspec.convert({"role": item.role, "content": text}, Message))

    def _push(self, message: Message) -> None:
        self.messages.append(message)
        self._reply = None

    def _begun_reply(self) -> Message:
        if self._reply is None:
            self._reply = Message("assistant", "")
            self.messages.append(self._reply)
        return self._reply


def as_chat(body: ResponsesRequest, messages: list[Message]) -> ChatRequest:
    """The request as a chat with these messages. Tools that are no functions are skipped: OpenAI's servers run them."""
    _refuse(body)
    tools = [*enumerate(body.tools or ())]
    return chat_body(
        body,
        messages=[*([Message("system", body.instructions)] if body.instructions else ()), *messages],
        tools=[_function(tool, index) for index, tool in tools if _is_function(tool)] or None,
        skipped_tools=[str(tool.get("name") or tool.get("type")) for _, tool in tools if not _is_function(tool)],
        places={str(tool.get("name")): f"tools[{index}].parameters" for index, tool in tools},
        tool_choice=body.tool_choice,
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
    return ToolCall(FunctionCall(item.name, item.arguments or ""), item.call_id, "function")


def _text(content: Any, place: str) -> str:  # noqa: ANN401
    parts: str | list[Part] = convert(content, str | list[Part], place)
    return parts if isinstance(parts, str) else text_of(parts, place, _TEXT_PARTS)


def _is_function(tool: dict[str, Any]) -> bool:
    return tool.get("type") == "function"


def _function(tool: dict[str, Any], index: int) -> dict[str, Any]:
    name, description, parameters = tool.get("name"), tool.get("description"), tool.get("parameters")
    if not isinstance(name, str) or not name:
        raise bad_field(f"tools[{index}].name", "must be a text")
    if not isinstance(parameters or {}, dict):
        raise bad_field(f"tools[{index}].parameters", "must be an object")
    return function_tool(name, str(description) if description else None, parameters)


def _format(wanted: TextFormat) -> ResponseFormat:
    schema = {"name": wanted.name or "", "schema": wanted.schema, "strict": wanted.strict}
    detail = {"json_schema": schema} if wanted.type == "json_schema" else {}
    return response_format("text.format", {"type": wanted.type, **detail})


def _refuse(body: ResponsesRequest) -> None:
    """Refuse unsupported features, rather than reply without them."""
    for name, instead in (
        ("background", "leave it out, and stream"),
        ("conversation", "use previous_response_id"),
        ("prompt", "use instructions and input"),
        ("top_logprobs", "use /v1/chat/completions"),
    ):
        if value := getattr(body, name):
            raise not_yet(name, value, instead)
