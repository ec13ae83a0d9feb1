"""Finds out how a template wants its messages: once, by trying, since no template says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from leftoff.chat.template.quirks import Shape, described
from leftoff.chat.template.render import ChatTemplate, MessageDict, TemplateError, TemplateLimitError, ToolDict

_USER = {"role": "user", "content": "question?"}
_RULE = {"role": "system", "content": "first rule"}
_OTHER_RULE = {"role": "system", "content": "other rule"}
_REPLY = {"role": "assistant", "content": "answer."}
_RESULT = {"role": "tool", "tool_call_id": "call_0123456789", "name": "look_up", "content": "forty-two"}
_CALL: MessageDict = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_0123456789",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"place": "harbour"}'},
        }
    ],
}
_BROKEN_CALL: MessageDict = {
    **_CALL,
    "tool_calls": [{**_CALL["tool_calls"][0], "function": {"name": "look_up", "arguments": "harbour"}}],
}
_TOOL = {"type": "function", "function": {"name": "find_ship", "parameters": {"type": "object", "properties": {}}}}


def find_shape(template: ChatTemplate) -> Shape:
    """Renders a few conversations of two or three messages, and looks what comes out."""
    probe = _Probe(template)
    shape = Shape(knows_developer=template.mentions("developer"))
    headers, calls = (probe.header, probe.late_header), (probe.calls, probe.broken_calls)
    for find in (probe.content, *headers, *calls, probe.thinking, probe.tools):
        shape = find(shape)
    return shape


@dataclass(frozen=True)
class _Probe:
    """Every method gives the shape with one more thing found out."""

    template: ChatTemplate

    def content(self, shape: Shape) -> Shape:
        parts = replace(shape, text_as_parts=True)
        return (
            parts
            if not self._shows(shape, [_USER], "question?") and self._shows(parts, [_USER], "question?")
            else shape
        )

    def header(self, shape: Shape) -> Shape:
        if self._shows(shape, [_RULE, _OTHER_RULE, _USER], "first rule", "other rule"):
            return shape
        if self._shows(shape, [_RULE, _USER], "first rule"):
            return replace(shape, merges_header=True)
        return replace(shape, header_into_user=True)

    def late_header(self, shape: Shape) -> Shape:
        is_shown = self._shows(shape, [_USER, _REPLY, _OTHER_RULE, _USER], "other rule")
        return shape if is_shown else replace(shape, late_header_into_user=True)

    def calls(self, shape: Shape) -> Shape:
        """The first way in which a call and its result both come out; or else each by itself; or else as text."""
        ways = [
            replace(shape, short_ids=short, null_content=null, object_arguments=objects)
            for short, null, objects in product((False, True), (False, True), (True, False))
        ]
        for way in ways:
            if self._shows(way, [_USER, _CALL, _RESULT], "look_up", "harbour", "forty-two"):
                return way
        as_text = replace(shape, shows_calls=False)
        way = next((way for way in ways if self._shows(way, [_USER, _CALL], "harbour")), as_text)
        return replace(way, shows_results=self._shows(way, [_USER, _CALL, _RESULT], "forty-two"))

    def broken_calls(self, shape: Shape) -> Shape:
        """Templates that go through an object may fail on text, and a whole conversation with it."""
        if not (shape.shows_calls and shape.object_arguments):
            return shape
        is_shown = self._shows(shape, [_USER, _BROKEN_CALL, _RESULT], "look_up", "harbour")
        return shape if is_shown else replace(shape, wraps_broken_arguments=True)

    def thinking(self, shape: Shape) -> Shape:
        conversation = [_USER, {**_CALL, "reasoning_content": "deep thought"}, _RESULT]
        other = replace(shape, thinking="thinking")
        if not self._shows(shape, conversation, "deep thought") and self._shows(other, conversation, "deep thought"):
            return other
        return shape

    def tools(self, shape: Shape) -> Shape:
        if not self._shows(shape, [_USER], "find_ship", tools=[described(_TOOL, "Finds a ship.")]):
            return replace(shape, shows_tools=False)
        return replace(shape, wants_descriptions=not self._shows(shape, [_USER], "find_ship", tools=[_TOOL]))

    def _shows(
        self, shape: Shape, messages: Sequence[MessageDict], *words: str, tools: Sequence[ToolDict] | None = None
    ) -> bool:
        try:
            text = self.template.render(shape.messages(messages), tools=shape.tools(tools))
        except TemplateLimitError:
            raise  # with two or three messages: it will not do better with more
        except TemplateError:
            return False
        # Python's way to print an object, or JSON inside of a JSON string, is no form that a model was trained on.
        return all(word in text for word in words) and not any(bad in text for bad in ("'place'", '\\"place'))
