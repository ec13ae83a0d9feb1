"""From what a request asks for to a constraint for each of its replies.

What reads and compiles schemas runs aside, and not for ever: neither the event loop nor other requests wait for it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from leftoff.chat.formats.parser import Output
from leftoff.grammar.constraint import GrammarConstraint, Outline, Trigger
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import Grammar, literal
from leftoff.server.http.errors import bad_field, busy
from leftoff.server.request.fields import GenerationFields
from leftoff.server.request.messages import ChatFields
from leftoff.server.request.response_format import form_field, form_of
from leftoff.server.request.thinking import is_open, marks_of
from leftoff.server.request.tool_choice import ToolChoice, choose_tools
from leftoff.server.request.tool_grammars import ToolGrammars
from leftoff.server.service import Service
from leftoff.types import Prompt

_COMPILE_SECONDS = 10.0  # of one's own: neither the compiling of the tokenizer counts, nor those who came before
_WAITING_SECONDS = 60.0
_PROMPT_END_TOKENS = 16


async def make_guides(
    service: Service,
    body: GenerationFields,
    output: Output | None,
    prompts: Sequence[Prompt],
    num_each: int,
    num_bytes: int,
) -> list[GrammarConstraint | None]:
    """One for each reply, those to one prompt together; None where a reply is free. `num_bytes` has the request."""
    choice = choose_tools(body.tool_choice, body.tools) if isinstance(body, ChatFields) else ToolChoice(())
    free: list[GrammarConstraint | None] = [None] * (len(prompts) * num_each)
    field = form_field(body)
    must_follow = choice.must or field is not None
    if not choice.tools and not must_follow:
        return free
    compiling = service.grammars.submit(
        lambda: _guides(service, body, output, choice, prompts, num_each), is_long=service.lanes.is_long(num_bytes)
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
    service: Service,
    body: GenerationFields,
    output: Output | None,
    choice: ToolChoice,
    prompts: Sequence[Prompt],
    num_each: int,
) -> list[GrammarConstraint | None]:
    grammar, triggers = _parts(service, body, output, choice)
    if grammar is None and not triggers:
        return [None] * (len(prompts) * num_each)
    repeats = output is not None and not output.one_call
    plain = Outline(grammar, triggers, repeats=bool(triggers) and repeats)
    outlines = [_with_thinking(plain, service, body, output, prompt) for prompt in prompts]
    return [GrammarConstraint(service.grammars, outline) for outline in outlines for _ in range(num_each)]


def _parts(
    service: Service, body: GenerationFields, output: Output | None, choice: ToolChoice
) -> tuple[Grammar | None, tuple[Trigger, ...]]:
    """What the whole reply must look like, or what must follow where a call begins."""
    content = _content(service, body, output)
    if output is None or not choice.tools or not isinstance(body, ChatFields):
        return content, ()
    tools = ToolGrammars(service.grammars, output, choice.tools, body.tool_places)
    try:
        if choice.must:
            return tools.calls(), ()
        return (None, tools.triggers()) if content is None else (content | tools.calls(), ())
    except GrammarError as error:
        if choice.must:
            raise bad_field("tools", str(error)) from error
        return content, ()  # a model that may call as it likes may do so without our help


def _content(service: Service, body: GenerationFields, output: Output | None) -> Grammar | None:
    form = form_of(body)
    if form is None:
        return None
    try:
        service.grammars.compile(form.grammar)
    except GrammarError as error:
        raise bad_field(form.field, str(error)) from error
    before = output.format.before_content if output else ""
    return literal(before, service.model.vocabulary) + form.grammar if before else form.grammar


def _with_thinking(
    outline: Outline, service: Service, body: GenerationFields, output: Output | None, prompt: Prompt
) -> Outline:
    """The reasoning is free, if there will be any."""
    if output is None or output.format.reasoning is None:
        return outline
    last = prompt.tokens[-_PROMPT_END_TOKENS:]
    prompt_end = service.model.vocabulary.detokenize(last).decode("utf-8", "replace")
    marks = marks_of(output.format.reasoning, service.prompts.template, body, prompt_end)
    return replace(outline, reasoning=marks, is_reasoning=marks is not None and is_open(marks, prompt_end))
