"""Constrained decoding: from the response format, tools and tool choice of a request to a grammar for each reply.

Schemas are read and compiled on a thread of their own, within a time limit, so that nothing else waits for them.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from blake3 import blake3
from msgspec import msgpack

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
from leftoff.server.request.fields import ChatFields, GenerationFields, ResponseFormat, Schema
from leftoff.server.request.tool_grammar import ToolChoice, ToolGrammars, choose_tools
from leftoff.types import Prompt, ReasoningTags

_COMPILE_SECONDS = 10.0  # of one's own: neither the compiling of the tokenizer counts, nor those who came before
_WAITING_SECONDS = 60.0
_PROMPT_END_TOKENS = 16


async def make_guides(
    host: ModelHost,
    body: GenerationFields,
    output: Output | None,
    prompts: Sequence[Prompt],
    num_each: int,
    num_bytes: int,
) -> list[GrammarConstraint | None]:
    """One for each reply, those to one prompt together; None where a reply is free. `num_bytes` is the body's size."""
    choice = ToolChoice(())
    if isinstance(body, ChatFields) and (body.tools or body.tool_choice is not None):
        choice = choose_tools(body.tool_choice, body.tools)
    free: list[GrammarConstraint | None] = [None] * (len(prompts) * num_each)
    field = form_field(body)
    must_follow = choice.must or field is not None
    if not choice.tools and not must_follow:
        return free
    compiling = host.grammars.submit(
        lambda: _guides(host, body, output, choice, prompts, num_each), is_long=host.lanes.is_long(num_bytes)
    )
    try:
        await asyncio.wait_for(asyncio.wrap_future(compiling.started), _WAITING_SECONDS)
    except TimeoutError as error:
        compiling.result.cancel()
        raise busy("what other replies must look like is still being compiled") from error
    try:
        return await asyncio.wait_for(asyncio.wrap_future(compiling.result), _COMPILE_SECONDS)
    except TimeoutError as error:
        if not must_follow:
            return free
        problem = f"what the reply must look like takes more than {_COMPILE_SECONDS:.0f} s to compile: make it simpler"
        raise bad_field(field or "tools", problem) from error


def _guides(
    host: ModelHost,
    body: GenerationFields,
    output: Output | None,
    choice: ToolChoice,
    prompts: Sequence[Prompt],
    num_each: int,
) -> list[GrammarConstraint | None]:
    grammar, triggers = _parts(host, body, output, choice)
    if grammar is None and not triggers:
        return [None] * (len(prompts) * num_each)
    repeats = output is not None and not output.one_call
    plain = Outline(grammar, triggers, repeats=bool(triggers) and repeats)
    outlines = [_with_thinking(plain, host, body, output, prompt) for prompt in prompts]
    return [GrammarConstraint(host.grammars, outline) for outline in outlines for _ in range(num_each)]


def _parts(
    host: ModelHost, body: GenerationFields, output: Output | None, choice: ToolChoice
) -> tuple[Grammar | None, tuple[Trigger, ...]]:
    """The grammar of the whole reply, or grammars for what follows a trigger of a tool call."""
    content = _content(host, body, output)
    if output is None or not choice.tools or not isinstance(body, ChatFields):
        return content, ()
    tools = ToolGrammars(host.grammars, output, choice.tools, body.tool_places)
    try:
        if choice.must:
            return tools.calls(), ()
        return (None, _triggers(host, output, choice, tools)) if content is None else (content | tools.calls(), ())
    except GrammarError as error:
        if choice.must:
            raise bad_field("tools", str(error)) from error
        return content, ()  # a model that may call as it likes may do so without our help


def _triggers(host: ModelHost, output: Output, choice: ToolChoice, tools: ToolGrammars) -> tuple[Trigger, ...]:
    """A client offers the same tools with every turn: their grammars are made once."""
    key = blake3(msgpack.encode((choice.tools, output.one_call))).digest()
    known = host.call_triggers.get(key)
    if known is None:
        known = tools.triggers()
        host.call_triggers.put(key, known)
    return known


def _content(host: ModelHost, body: GenerationFields, output: Output | None) -> Grammar | None:
    form = form_of(body)
    if form is None:
        return None
    try:
        host.grammars.compile(form.grammar)
    except GrammarError as error:
        raise bad_field(form.field, str(error)) from error
    before = output.format.before_content if output else ""
    return literal(before, host.model.vocabulary) + form.grammar if before else form.grammar


def _with_thinking(
    outline: Outline, host: ModelHost, body: GenerationFields, output: Output | None, prompt: Prompt
) -> Outline:
    """Leaves reasoning before the reply unconstrained, if there will be any."""
    if output is None or output.format.reasoning is None:
        return outline
    last = prompt.tokens[-_PROMPT_END_TOKENS:]
    prompt_end = host.model.vocabulary.text(last)
    marks = marks_of(output.format.reasoning, host.prompts.template, body, prompt_end)
    return replace(outline, reasoning=marks, is_reasoning=marks is not None and marks.are_opened_by(prompt_end))


# --- the form of the content

_FORMATS = ("text", "json_object", "json_schema", "regex")


@dataclass(frozen=True)
class Form:
    """The grammar of a reply's content, and the field that asks for it."""

    field: str
    grammar: Grammar


def form_field(body: GenerationFields) -> str | None:
    """The first field that asks for a grammar, if any does."""
    return next((field for field, _, _ in _wanted(body)), None)


def form_of(body: GenerationFields) -> Form | None:
    """The grammar that a request asks for. A field that cannot be read, or a second one, is refused by name."""
    wanted = [*_wanted(body)]
    if len(wanted) > 1:
        raise bad_field(wanted[1][0], f"{wanted[0][0]} says already what the reply must look like: give one of them")
    return _read(*wanted[0]) if wanted else None


def _wanted(body: GenerationFields) -> Iterator[tuple[str, str, Any]]:
    """Each field that asks for a grammar, its kind, and its value."""
    if body.response_format is not None:
        yield from _response_format(body.response_format)
    vllm = body.structured_outputs
    fields = (
        ("grammar", "grammar", body.grammar or None),
        ("json_schema", "json", body.json_schema),
        ("guided_json", "json", body.guided_json),
        ("guided_regex", "regex", body.guided_regex),
        ("guided_choice", "choice", body.guided_choice),
        ("guided_grammar", "grammar", body.guided_grammar),
        ("structured_outputs.json", "json", vllm and vllm.json),
        ("structured_outputs.regex", "regex", vllm and vllm.regex),
        ("structured_outputs.choice", "choice", vllm and vllm.choice),
        ("structured_outputs.grammar", "grammar", vllm and vllm.grammar),
        ("structured_outputs.json_object", "json", {**ANY_OBJECT} if vllm and vllm.json_object else None),
    )
    yield from (field for field in fields if field[2] is not None)


def _response_format(wanted: ResponseFormat) -> Iterator[tuple[str, str, Any]]:
    match wanted.type:
        case "text":
            return
        case "json_object":  # llama-server takes a schema here too
            yield wanted.field("schema"), "json", {**ANY_OBJECT} if wanted.schema is None else wanted.schema
        case "json_schema" if wanted.json_schema is not None and wanted.json_schema.schema is not None:
            yield wanted.field("json_schema.schema"), "json", wanted.json_schema.schema
        case "json_schema" if wanted.schema is not None:
            yield wanted.field("schema"), "json", wanted.schema
        case "json_schema":
            raise bad_field(wanted.field("json_schema.schema"), "this field is required with type 'json_schema'")
        case "regex":
            if wanted.pattern is None:
                raise bad_field(wanted.field("pattern"), "this field is required with type 'regex'")
            yield wanted.field("pattern"), "regex", wanted.pattern
        case other:
            raise bad_field(wanted.field("type"), f"is {other!r}: must be one of {', '.join(_FORMATS)}")


def _read(field: str, kind: str, value: Any) -> Form:  # noqa: ANN401
    try:
        match kind:
            case "json":
                return Form(field, from_schema(_schema(value)))
            case "regex":
                return Form(field, from_regex(value))
            case "choice":
                return Form(field, from_choices(value))
            case _:
                return Form(field, from_gbnf(value))
    except GrammarError as error:
        raise bad_field(field, str(error)) from error


def _schema(value: Schema | str) -> Schema:
    """A schema may come as a string, from vLLM's clients."""
    if isinstance(value, str):
        check_characters(len(value))
    try:
        schema = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise GrammarError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarError("a schema must be an object")
    return schema


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
    return marks if not is_closed and isinstance(body, ChatFields) and _may_think(marks, template, body) else None


def _may_think(marks: ReasoningTags, template: ChatTemplate, body: ChatFields) -> bool:
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
