"""How one template wants its messages; `probe.py` finds it out.

Some want a call's arguments as an object and some as text, some know no second system message, some only ids of nine
letters. What a template would lose without a word is given to it in a form that it shows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.meter import is_bearable
from leftoff.chat.template.render import MessageDict, TemplateError, ToolDict

_HEADER_ROLES = ("system", "developer")
_SHORT_ID = 9


@dataclass(frozen=True)
class Shape:
    """What to do to messages before they are rendered."""

    text_as_parts: bool = False
    merges_header: bool = False  # only one system message is shown
    header_into_user: bool = False  # none is
    late_header_into_user: bool = False  # one that stands between turns is refused, or not shown
    object_arguments: bool = True
    wraps_broken_arguments: bool = False  # text that is no object, from a call that was cut off, is not shown
    null_content: bool = False  # of a message that only calls
    short_ids: bool = False
    thinking: str = "reasoning_content"
    shows_tools: bool = True
    shows_calls: bool = True
    shows_results: bool = True
    wants_descriptions: bool = False
    knows_developer: bool = False

    def messages(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        plain = [self._message(message, index) for index, message in enumerate(messages)]
        if self.merges_header or self.header_into_user:
            plain = _merged_header(plain)
        if self.header_into_user:
            plain = _header_into_user(plain)
        if self.late_header_into_user:
            plain = _late_header_into_user(plain)
        return [_as_parts(message) for message in plain] if self.text_as_parts else plain

    def tools(self, tools: Sequence[ToolDict] | None) -> Sequence[ToolDict] | None:
        return [described(tool) for tool in tools] if tools and self.wants_descriptions else tools

    def _message(self, message: MessageDict, index: int) -> MessageDict:
        plain = {key: value for key, value in message.items() if value is not None}
        plain["content"] = _text(message.get("content"), index)
        plain["role"] = self._role(plain.get("role"))
        self._set_thinking(plain)
        if not plain.get("tool_calls"):
            plain.pop("tool_calls", None)
        else:
            self._set_calls(plain)
        if plain.get("role") == "tool":
            self._set_result(plain)
        return plain

    def _role(self, role: str | None) -> str | None:
        if role == "developer" and not self.knows_developer:
            return "system"
        return "tool" if role == "function" else role

    def _set_thinking(self, plain: dict[str, Any]) -> None:
        thinking = plain.pop("reasoning", None) or plain.get("reasoning_content")
        if not isinstance(thinking, str):
            return
        plain.pop("reasoning_content", None)
        plain[self.thinking] = thinking
        if self.thinking == "thinking" and plain.get("tool_calls") and plain["content"]:
            # Such templates show one of the two before a call, and refuse both.
            plain["thinking"], plain["content"] = f"{thinking}\n\n{plain['content']}", ""

    def _set_calls(self, plain: dict[str, Any]) -> None:
        calls = [self._call(call) for call in plain["tool_calls"]]
        if not self.shows_calls:
            del plain["tool_calls"]
            shown = (f"<tool_call>\n{json.dumps(_function(call), ensure_ascii=False)}\n</tool_call>" for call in calls)
            plain["content"] = "\n".join(filter(None, [plain["content"], *shown]))
            return
        plain["tool_calls"] = calls
        if self.null_content and not plain["content"]:
            plain["content"] = None

    def _set_result(self, plain: dict[str, Any]) -> None:
        if not self.shows_results:
            plain["role"] = "user"
            plain["content"] = f"<tool_response>\n{plain['content']}\n</tool_response>"
        elif self.short_ids and "tool_call_id" in plain:
            plain["tool_call_id"] = _short_id(plain["tool_call_id"])

    def _call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = dict(call.get("function") or {})
        function["arguments"] = self._arguments(function.get("arguments"))
        if self.short_ids and "id" in call:
            return {**call, "id": _short_id(call["id"]), "function": function}
        return {**call, "function": function}

    def _arguments(self, arguments: Any) -> Any:  # noqa: ANN401
        if not self.object_arguments:
            return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        if not isinstance(arguments, str):
            return arguments or {}
        if not arguments.strip():
            return {}
        parsed = _parsed(arguments)
        if parsed is not None:
            return parsed
        return {"arguments": arguments} if self.wraps_broken_arguments else arguments


def _text(content: Any, index: int) -> str:  # noqa: ANN401
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise TemplateError(f"messages[{index}].content is neither text nor a list of parts")
    return "\n".join(_part_text(part, index) for part in content)


def _part_text(part: Any, index: int) -> str:  # noqa: ANN401
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        raise TemplateError(f"messages[{index}].content has a part of type {kind!r}: this model reads only text")
    return text


def _parsed(arguments: str) -> dict[str, Any] | None:
    """None if the model wrote no object, or not all of it."""
    if not is_bearable(arguments):
        raise TemplateError("the arguments of a call in messages have too many values: leave some out")
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": call["function"].get("name"), "arguments": call["function"]["arguments"]}


def _short_id(name: object) -> str:
    name = str(name)
    if len(name) == _SHORT_ID and name.isalnum():
        return name
    return hashlib.sha256(name.encode()).hexdigest()[:_SHORT_ID]


def _merged_header(messages: list[MessageDict]) -> list[MessageDict]:
    size = _header_size(messages)
    if size < 2:
        return messages
    content = "\n\n".join(filter(None, (message["content"] for message in messages[:size])))
    return [{**messages[0], "content": content}, *messages[size:]]


def _header_into_user(messages: list[MessageDict]) -> list[MessageDict]:
    if len(messages) < 2 or messages[0].get("role") not in _HEADER_ROLES or messages[1].get("role") != "user":
        return messages
    content = "\n\n".join(filter(None, (message["content"] for message in messages[:2])))
    return [{**messages[1], "content": content}, *messages[2:]]


def _late_header_into_user(messages: list[MessageDict]) -> list[MessageDict]:
    """As a reminder within the user's turn: many templates want user and assistant to take turns."""
    size = _header_size(messages)
    told = messages[:size]
    is_reminder = False  # what was told last
    for message in messages[size:]:
        was_reminder, is_reminder = is_reminder, message.get("role") in _HEADER_ROLES
        turn = _reminder(message) if is_reminder else message
        if (was_reminder or is_reminder) and told[-1].get("role") == turn.get("role") == "user":
            told[-1] = {**told[-1], "content": f"{told[-1]['content']}\n\n{turn['content']}"}
        else:
            told.append(turn)
    return told


def _reminder(message: MessageDict) -> MessageDict:
    return {"role": "user", "content": f"<system-reminder>\n{message['content']}\n</system-reminder>"}


def _header_size(messages: list[MessageDict]) -> int:
    roles = (message.get("role") for message in messages)
    return next((index for index, role in enumerate(roles) if role not in _HEADER_ROLES), len(messages))


def _as_parts(message: MessageDict) -> MessageDict:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def described(tool: ToolDict, text: str = "") -> ToolDict:
    function = tool.get("function")
    if not isinstance(function, Mapping) or function.get("description"):
        return tool
    return {**tool, "function": {**function, "description": text}}
