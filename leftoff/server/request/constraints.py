"""Constrained decoding: from the response format, tools and tool choice of a request to a grammar for each reply.

Schemas are read and compiled on a thread of their own, within a time limit, so that nothing else waits for them.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from leftoff.chat.formats.parser import Output
from leftoff.chat.template.render import ChatTemplate, TemplateError
from leftoff.grammar.constraint import GrammarConstraint, Outline, Trigger
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.gbnf import from_gbnf
from leftoff.grammar.grammar import (
    ANY_OBJECT,
    Grammar,
    check_characters,
    from_choices,
    from_regex,
    from_schema,
    literal,
)
from leftoff.host.host import ModelHost
from leftoff.server.http.errors import bad_field, busy
from leftoff.server.request.fields import ChatRequest, GenerationFields, ResponseFormat, Schema, StructuredOutputs
from leftoff.server.request.tool_grammar import ToolChoice, ToolGrammars, choose_tools
from leftoff.types import Prompt, ReasoningTags

_COMPILE_SECONDS = 10.0  # for the grammars of one request, once it is their turn and the tokenizer is compiled
_WAITING_SECONDS = 60.0  # until it is their turn
_PROMPT_END_TOKENS = 16


@dataclass(frozen=True)
class Guides:
    """Makes the grammars of the replies to one request, which are parsed by `output` if that is given."""

    host: ModelHost
    body: GenerationFields
    output: Output | None

    async def make(self, prompts: Sequence[Prompt], num_each: int, num_bytes: int) -> list[GrammarConstraint | None]:
        """A grammar for each reply, those to one prompt together; None where it is free. `num_bytes` is the body's."""
        grammars, body = self.host.grammars, self.body
        choice = ToolChoice(())
        if isinstance(body, ChatRequest) and (body.tools or body.tool_choice is not None):
            choice = choose_tools(body.tool_choice, body.tools)
        free: list[GrammarConstraint | None] = [None] * (len(prompts) * num_each)
        form = next(forms_of(body), None)
        must_follow = choice.must or form is not None
        if not choice.tools and not must_follow:
            return free

        def compile_all() -> list[GrammarConstraint | None]:
            outline = self._outline(choice)
            if outline is None:
                return free
            outlines = [self._with_thinking(outline, prompt) for prompt in prompts]
            return [GrammarConstraint(grammars, each) for each in outlines for _ in range(num_each)]

        compiling = grammars.submit(compile_all, is_long=self.host.lanes.is_long(num_bytes))
        try:
            async with asyncio.timeout(_WAITING_SECONDS):
                await asyncio.wrap_future(compiling.started)
        except TimeoutError as error:
            compiling.result.cancel()
            raise busy("what other replies must look like is still being compiled") from error
        try:
            async with asyncio.timeout(_COMPILE_SECONDS):
                return await asyncio.wrap_future(compiling.result)
        except TimeoutError as error:
            if not must_follow:
                return free
            limit = f"{_COMPILE_SECONDS:.0f} s"
            problem = f"what the reply must look like takes more than {limit} to compile: make it simpler"
            raise bad_field(form.field if form else "tools", problem) from error
        finally:
            del compiling  # else it, its error and this frame keep each other, and a refused request with its prompts

    def _outline(self, choice: ToolChoice) -> Outline | None:
        """A grammar of the whole reply, or grammars for what follows a trigger of a tool call."""
        content, output = self._content(), self.output
        if output is None or not choice.tools or not isinstance(self.body, ChatRequest):
            return Outline(content) if content is not None else None
        tools = ToolGrammars(self.host.grammars, output, choice.tools, self.body.tool_place)
        try:
            if choice.must:
                return Outline(tools.calls())
            if content is not None:
                return Outline(content | tools.calls())
            triggers = self._triggers(output, choice, tools)
            return Outline(None, triggers, repeats=not output.one_call) if triggers else None
        except GrammarError as error:
            if choice.must:
                raise bad_field("tools", str(error)) from error
            # a model that may call as it likes may do so without our help
            return Outline(content) if content is not None else None

    def _triggers(self, output: Output, choice: ToolChoice, tools: ToolGrammars) -> tuple[Trigger, ...]:
        """A client offers the same tools with every turn: their grammars are made once."""
        key = blake3(msgspec.json.encode((choice.tools, output.one_call))).digest()
        known = self.host.call_triggers.get(key)
        if known is None:
            known = tools.triggers()
            self.host.call_triggers.put(key, known)
        return known

    def _content(self) -> Grammar | None:
        """The grammar that a field asks for. One that cannot be read, or a second one, is refused by name."""
        forms = [*forms_of(self.body)]
        if not forms:
            return None
        first, *others = forms
        if others:
            problem = f"{first.field} says already what the reply must look like: give one of them"
            raise bad_field(others[0].field, problem)
        try:
            grammar = first.read(first.value)
            self.host.grammars.compile(grammar)
        except GrammarError as error:
            raise bad_field(first.field, str(error)) from error
        before = self.output.format.before_content if self.output else ""
        return literal(before, self.host.model.vocabulary) + grammar if before else grammar

    def _with_thinking(self, outline: Outline, prompt: Prompt) -> Outline:
        """Leaves reasoning before the reply unconstrained, if there will be any."""
        if self.output is None:
            return outline
        prompt_end = self.host.model.vocabulary.text(prompt.tokens[-_PROMPT_END_TOKENS:])
        marks = marks_of(self.output.format.reasoning, self.host.prompts.template, self.body, prompt_end)
        return replace(outline, reasoning=marks, is_reasoning=marks is not None and marks.are_opened_by(prompt_end))


# --- the form of the content

_FORMATS = ("text", "json_object", "json_schema", "regex")


class Form(NamedTuple):
    """A field that asks for the form of a reply's content: how its value is read, and the value."""

    field: str
    read: Callable[[Any], Grammar]
    value: Any


def forms_of(body: GenerationFields) -> Iterator[Form]:
    """Each field that asks for a form."""
    if body.response_format is not None:
        yield from _response_format(body.response_format)
    vllm = body.structured_outputs or StructuredOutputs()
    forms = (
        Form("grammar", from_gbnf, body.grammar or None),
        Form("json_schema", _from_json, body.json_schema),
        Form("guided_json", _from_json, body.guided_json),
        Form("guided_regex", from_regex, body.guided_regex),
        Form("guided_choice", from_choices, body.guided_choice),
        Form("guided_grammar", from_gbnf, body.guided_grammar),
        Form("structured_outputs.json", _from_json, vllm.json),
        Form("structured_outputs.regex", from_regex, vllm.regex),
        Form("structured_outputs.choice", from_choices, vllm.choice),
        Form("structured_outputs.grammar", from_gbnf, vllm.grammar),
        Form("structured_outputs.json_object", _from_json, {**ANY_OBJECT} if vllm.json_object else None),
    )
    yield from (form for form in forms if form.value is not None)


def _response_format(wanted: ResponseFormat) -> Iterator[Form]:
    match wanted.type:
        case "text":
            return
        case "json_object":  # llama-server takes a schema here too
            yield Form(wanted.field("schema"), _from_json, {**ANY_OBJECT} if wanted.schema is None else wanted.schema)
        case "json_schema" if wanted.json_schema is not None and wanted.json_schema.schema is not None:
            yield Form(wanted.field("json_schema.schema"), _from_json, wanted.json_schema.schema)
        case "json_schema" if wanted.schema is not None:
            yield Form(wanted.field("schema"), _from_json, wanted.schema)
        case "json_schema":
            raise bad_field(wanted.field("json_schema.schema"), "this field is required with type 'json_schema'")
        case "regex":
            if wanted.pattern is None:
                raise bad_field(wanted.field("pattern"), "this field is required with type 'regex'")
            yield Form(wanted.field("pattern"), from_regex, wanted.pattern)
        case other:
            raise bad_field(wanted.field("type"), f"is {other!r}: must be one of {', '.join(_FORMATS)}")


def _from_json(value: Schema | str) -> Grammar:
    """The grammar of a schema, which may come as a string from vLLM's clients."""
    if isinstance(value, str):
        check_characters(len(value))
    try:
        schema = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"it is not JSON, or nested too deeply: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarError("a schema must be an object")
    return from_schema(schema)


# --- the reasoning before it

_SWITCH = "enable_thinking"
_QUESTION = [{"role": "user", "content": "?"}]


def marks_of(
    thinking: ReasoningTags, template: ChatTemplate, body: GenerationFields, prompt_end: str
) -> ReasoningTags | None:
    """The tags around the reasoning of this reply; None if the model will not reason."""
    marks = ReasoningTags(thinking.begin.strip(), thinking.end.strip())
    if marks.are_opened_by(prompt_end):
        return marks
    is_closed = marks.end in prompt_end
    return marks if not is_closed and isinstance(body, ChatRequest) and _may_think(marks, template, body) else None


def _may_think(marks: ReasoningTags, template: ChatTemplate, body: ChatRequest) -> bool:
    options = body.template_options
    if _SWITCH in options:
        return bool(options[_SWITCH])
    if "reasoning_effort" in options:
        return True
    return _thinks_by_default(template) if template.mentions(_SWITCH) else template.mentions(marks.begin)


@lru_cache(8)
def _thinks_by_default(template: ChatTemplate) -> bool:
    """Reasoning is on by default if switching it off changes the rendered prompt."""
    try:
        return template.render(_QUESTION) != template.render(_QUESTION, options={_SWITCH: False})
    except TemplateError:
        return False
