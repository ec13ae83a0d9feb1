"""The quirks of a chat template: which forms of messages it renders, found by rendering probes.

Some templates take a call's arguments as an object and others as text; some render no second system message; some
take only ids of nine letters. Messages that a template would drop are changed into a form that it renders.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from leftoff.chat.formats.parts import parse_arguments
from leftoff.chat.meter import is_bearable
from leftoff.chat.template.render import ChatTemplate, MessageDict, TemplateError, TemplateLimitError, ToolDict
from leftoff.types import HEADER_ROLES, header_size

_SHORT_ID_LENGTH = 9


@dataclass(frozen=True)
class Quirks:
    """How to change messages and tools before they are rendered."""

    text_as_parts: bool = False
    merges_header: bool = False  # only one system message is rendered
    header_into_user: bool = False  # no system message is rendered
    late_header_into_user: bool = False  # a system message between turns is refused or dropped
    object_arguments: bool = True
    wraps_broken_arguments: bool = False  # arguments that are no object, of a call that was cut off, are refused
    null_content: bool = False  # the content of a message that only calls tools must be null
    short_ids: bool = False
    reasoning_field: str = "reasoning_content"
    shows_tools: bool = True
    shows_calls: bool = True
    shows_results: bool = True
    wants_descriptions: bool = False
    knows_developer: bool = False

    def messages(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        """The messages as the template takes them."""
        return self.arranged([self.form(message, index) for index, message in enumerate(messages)])

    def arranged(self, plain: list[MessageDict]) -> list[MessageDict]:
        """Merges and moves messages, each in its form already, where the template takes no such order."""
        if self.merges_header or self.header_into_user:
            plain = _merged_header(plain)
        if self.header_into_user:
            plain = _header_into_user(plain)
        if self.late_header_into_user:
            plain = _late_header_into_user(plain)
        return [_as_parts(message) for message in plain] if self.text_as_parts else plain

    def tools(self, tools: Sequence[ToolDict] | None) -> Sequence[ToolDict] | None:
        return [_described(tool) for tool in tools] if tools and self.wants_descriptions else tools

    def form(self, message: MessageDict, index: int) -> MessageDict:
        """The form in which the template takes a message, whatever others there are."""
        plain = {key: value for key, value in message.items() if value is not None}
        plain["content"] = _text(message.get("content"), index)
        if plain.get("role") == "developer" and not self.knows_developer:
            plain["role"] = "system"
        elif plain.get("role") == "function":
            plain["role"] = "tool"
        self._set_reasoning(plain)
        if not plain.get("tool_calls"):
            plain.pop("tool_calls", None)
        else:
            self._set_calls(plain)
        if plain.get("role") == "tool":
            self._set_result(plain)
        return plain

    def _set_reasoning(self, plain: dict[str, Any]) -> None:
        reasoning = plain.pop("reasoning", None) or plain.get("reasoning_content")
        if not isinstance(reasoning, str):
            return
        plain.pop("reasoning_content", None)
        plain[self.reasoning_field] = reasoning
        if self.reasoning_field == "thinking" and plain.get("tool_calls") and plain["content"]:
            # Such templates render either of the two before a call, and refuse both.
            plain["thinking"], plain["content"] = f"{reasoning}\n\n{plain['content']}", ""

    def _set_calls(self, plain: dict[str, Any]) -> None:
        calls = [self._call(call) for call in plain["tool_calls"]]
        if not self.shows_calls:
            del plain["tool_calls"]
            plain["content"] = "\n".join(filter(None, [plain["content"], *map(_call_as_text, calls)]))
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

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = dict(call.get("function") or {})
        function["arguments"] = self._arguments(function.get("arguments"))
        changed = {**call, "function": function}
        if self.short_ids and "id" in call:
            changed["id"] = _short_id(call["id"])
        return changed

    def _arguments(self, arguments: Any) -> Any:  # noqa: ANN401
        if not self.object_arguments:
            return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        if not isinstance(arguments, str):
            return arguments or {}
        if not arguments.strip():
            return {}
        if not is_bearable(arguments):
            raise TemplateError("the arguments of a call in messages have too many values: leave some out")
        parsed = parse_arguments(arguments)
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


def _call_as_text(call: Mapping[str, Any]) -> str:
    function = {"name": call["function"].get("name"), "arguments": call["function"]["arguments"]}
    return f"<tool_call>\n{json.dumps(function, ensure_ascii=False)}\n</tool_call>"


def _short_id(name: object) -> str:
    name = str(name)
    if len(name) == _SHORT_ID_LENGTH and name.isalnum():
        return name
    return hashlib.sha256(name.encode()).hexdigest()[:_SHORT_ID_LENGTH]


def _merged_header(messages: list[MessageDict]) -> list[MessageDict]:
    size = header_size(messages)
    if size < 2:
        return messages
    return [_with_contents(messages[0], messages[:size]), *messages[size:]]


def _header_into_user(messages: list[MessageDict]) -> list[MessageDict]:
    if len(messages) < 2 or messages[0].get("role") not in HEADER_ROLES or messages[1].get("role") != "user":
        return messages
    return [_with_contents(messages[1], messages[:2]), *messages[2:]]


def _with_contents(message: MessageDict, messages: list[MessageDict]) -> MessageDict:
    return {**message, "content": "\n\n".join(filter(None, (message["content"] for message in messages)))}


def _late_header_into_user(messages: list[MessageDict]) -> list[MessageDict]:
    """Makes it a reminder within the user's turn: many templates want user and assistant to take turns."""
    size = header_size(messages)
    changed = messages[:size]
    is_reminder = False
    for message in messages[size:]:
        was_reminder, is_reminder = is_reminder, message.get("role") in HEADER_ROLES
        turn = _reminder(message) if is_reminder else message
        if (was_reminder or is_reminder) and changed[-1].get("role") == turn.get("role") == "user":
            changed[-1] = {**changed[-1], "content": f"{changed[-1]['content']}\n\n{turn['content']}"}
        else:
            changed.append(turn)
    return changed


def _reminder(message: MessageDict) -> MessageDict:
    return {"role": "user", "content": f"<system-reminder>\n{message['content']}\n</system-reminder>"}


def _as_parts(message: MessageDict) -> MessageDict:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _described(tool: ToolDict, text: str = "") -> ToolDict:
    function = tool.get("function")
    if not isinstance(function, Mapping) or function.get("description"):
        return tool
    return {**tool, "function": {**function, "description": text}}


# --- probing

_USER = {"role": "user", "content": "question?"}
_RULE = {"role": "system", "content": "first rule"}
_OTHER_RULE = {"role": "system", "content": "other rule"}
_REPLY = {"role": "assistant", "content": "answer."}
_RESULT = {"role": "tool", "tool_call_id": "call_0123456789", "name": "look_up", "content": "forty-two"}
_TOOL = {"type": "function", "function": {"name": "find_ship", "parameters": {"type": "object", "properties": {}}}}


def _calling(arguments: str) -> MessageDict:
    function = {"name": "look_up", "arguments": arguments}
    call = {"id": "call_0123456789", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


_CALL = _calling('{"place": "harbour"}')


def find_quirks(template: ChatTemplate) -> Quirks:
    """Renders a few conversations of two or three messages and looks for their texts in the result."""
    probe = _Probe(template)
    quirks = Quirks(knows_developer=template.mentions("developer"))
    headers, calls = (probe.header, probe.late_header), (probe.calls, probe.broken_calls)
    for find in (probe.content, *headers, *calls, probe.reasoning, probe.tools):
        quirks = find(quirks)
    return quirks


@dataclass(frozen=True)
class _Probe:
    """Each method returns the quirks with one more found."""

    template: ChatTemplate

    def content(self, quirks: Quirks) -> Quirks:
        return self._first_shown([quirks, replace(quirks, text_as_parts=True)], [_USER], "question?")

    def header(self, quirks: Quirks) -> Quirks:
        if self._shows(quirks, [_RULE, _OTHER_RULE, _USER], "first rule", "other rule"):
            return quirks
        if self._shows(quirks, [_RULE, _USER], "first rule"):
            return replace(quirks, merges_header=True)
        return replace(quirks, header_into_user=True)

    def late_header(self, quirks: Quirks) -> Quirks:
        is_shown = self._shows(quirks, [_USER, _REPLY, _OTHER_RULE, _USER], "other rule")
        return quirks if is_shown else replace(quirks, late_header_into_user=True)

    def calls(self, quirks: Quirks) -> Quirks:
        """The first form in which a call and its result are rendered; else the first for a call; else text."""
        forms = [
            replace(quirks, short_ids=short, null_content=null, object_arguments=objects)
            for short, null, objects in product((False, True), (False, True), (True, False))
        ]
        for form in forms:
            if self._shows(form, [_USER, _CALL, _RESULT], "look_up", "harbour", "forty-two"):
                return form
        as_text = replace(quirks, shows_calls=False)
        form = next((form for form in forms if self._shows(form, [_USER, _CALL], "harbour")), as_text)
        return replace(form, shows_results=self._shows(form, [_USER, _CALL, _RESULT], "forty-two"))

    def broken_calls(self, quirks: Quirks) -> Quirks:
        """Templates that loop over an object may fail on text, and the whole conversation with it."""
        if not (quirks.shows_calls and quirks.object_arguments):
            return quirks
        is_shown = self._shows(quirks, [_USER, _calling("harbour"), _RESULT], "look_up", "harbour")
        return quirks if is_shown else replace(quirks, wraps_broken_arguments=True)

    def reasoning(self, quirks: Quirks) -> Quirks:
        conversation = [_USER, {**_CALL, "reasoning_content": "deep thought"}, _RESULT]
        return self._first_shown([quirks, replace(quirks, reasoning_field="thinking")], conversation, "deep thought")

    def tools(self, quirks: Quirks) -> Quirks:
        if not self._shows(quirks, [_USER], "find_ship", tools=[_described(_TOOL, "Finds a ship.")]):
            return replace(quirks, shows_tools=False)
        return replace(quirks, wants_descriptions=not self._shows(quirks, [_USER], "find_ship", tools=[_TOOL]))

    def _first_shown(self, forms: Sequence[Quirks], messages: Sequence[MessageDict], word: str) -> Quirks:
        """The first form in which the template renders the word; the first of all if there is none."""
        return next((form for form in forms if self._shows(form, messages, word)), forms[0])

    def _shows(
        self, quirks: Quirks, messages: Sequence[MessageDict], *words: str, tools: Sequence[ToolDict] | None = None
    ) -> bool:
        try:
            text = self.template.render(quirks.messages(messages), tools=quirks.tools(tools))
        except TemplateLimitError:
            raise  # with two or three messages: it cannot do better with more
        except TemplateError:
            return False
        # Python's repr of an object, or JSON inside a JSON string, is no form that a model was trained on.
        return all(word in text for word in words) and not any(bad in text for bad in ("'place'", '\\"place'))
