"""Whatever a model's way to write calls: what the grammar lets through, the parser reads, and it follows the schema."""

import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from leftoff.chat.formats.base import CallSyntax, OutputFormat
from leftoff.chat.formats.deepseek import DeepSeekCalls, DsmlCalls
from leftoff.chat.formats.gemma import GemmaCalls
from leftoff.chat.formats.glm import GlmCalls
from leftoff.chat.formats.harmony import HarmonyFormat
from leftoff.chat.formats.hermes import GenericCalls, GraniteCalls, HermesCalls
from leftoff.chat.formats.kimi import KimiCalls
from leftoff.chat.formats.lfm2 import Lfm2Calls
from leftoff.chat.formats.llama import LlamaCalls
from leftoff.chat.formats.mistral import MistralCalls
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import CallArguments, CallStart
from leftoff.chat.formats.qwen_xml import QwenXmlCalls
from leftoff.chat.formats.tagged import CallFormat, TaggedFormat
from leftoff.grammar.compile import Grammars
from leftoff.grammar.grammar import Grammar
from leftoff.server.http.errors import ApiError
from leftoff.server.request.tool_grammar import CallGrammar, choose_tools
from leftoff.types import ReasoningTags
from tests.grammar.conftest import grammars
from tests.grammar.walk import accepts, allowed

__all__ = ["grammars"]

CALLS: list[CallFormat] = [
    HermesCalls(),
    GenericCalls(),
    QwenXmlCalls(),
    LlamaCalls(),
    MistralCalls(has_list=True),
    MistralCalls(has_list=False),
    GlmCalls(),
    GraniteCalls(),
    Lfm2Calls(),
    DeepSeekCalls(has_code=True),
    DeepSeekCalls(has_code=False),
    KimiCalls(),
    DsmlCalls("tool_calls"),
    GemmaCalls(),
]
FORMATS: list[OutputFormat] = [
    *(TaggedFormat(type(calls).__name__, calls, ReasoningTags()) for calls in CALLS),
    HarmonyFormat(),
]
LOOK_UP = {
    "type": "object",
    "properties": {
        "place": {"enum": ["harbour", "hill"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 20},
        "exact": {"type": "boolean"},
        "spots": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2},
    },
    "required": ["place", "spots"],
}
NOTHING = {"type": "object", "properties": {}}
SCHEMAS = {"look_up": LOOK_UP, "rest": NOTHING}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]


def calls_in(output_format: OutputFormat, text: str) -> list[tuple[str, Any]]:
    parser = Output(output_format, TOOLS).parser()
    parts = (*parser.push(text), *parser.close())
    names = [part.name for part in parts if isinstance(part, CallStart)]
    texts = [
        "".join(part.text for part in parts if isinstance(part, CallArguments) and part.index == index)
        for index in range(len(names))
    ]
    return [(name, json.loads(text)) for name, text in zip(names, texts, strict=True)]


def random_text(grammars: Grammars, grammar: Grammar, rng: np.random.Generator) -> str:
    """What a model might write that knows nothing but the grammar."""
    vocabulary = grammars.vocabulary
    matcher, tokens = grammars.match(grammars.compile(grammar)), []
    while not matcher.is_done:
        token = int(rng.choice(sorted(allowed(matcher, vocabulary))))
        if token in vocabulary.end_tokens:
            break
        matcher.accept(token)
        tokens.append(token)
    return vocabulary.detokenize(np.array(tokens, np.int32)).decode()


@pytest.mark.parametrize("output_format", FORMATS, ids=lambda output_format: output_format.name)
def test_calls_at_random_are_read_and_follow_their_schemas(grammars: Grammars, output_format: OutputFormat) -> None:
    calls = CallGrammar(output_format.syntax, TOOLS, grammars.vocabulary)
    seen, rng = set(), np.random.default_rng(1)
    for _ in range(10):
        text = random_text(grammars, calls.calls(3), rng)
        found = calls_in(output_format, text)
        assert 1 <= len(found) <= 3, text
        for name, arguments in found:
            jsonschema.validate(arguments, SCHEMAS[name])
            seen.add(name)
    assert seen == {*SCHEMAS}


@pytest.mark.parametrize("output_format", FORMATS, ids=lambda output_format: output_format.name)
def test_after_its_trigger_a_call_goes_on_as_it_would_have(grammars: Grammars, output_format: OutputFormat) -> None:
    trigger, calls = output_format.trigger, CallGrammar(output_format.syntax, TOOLS, grammars.vocabulary)
    if not trigger:
        pytest.skip("any reply may be a call: there is nothing to wait for")
    rng = np.random.default_rng(2)
    for _ in range(4):
        text = random_text(grammars, calls.calls(1), rng)
        assert text.startswith(trigger)
        assert accepts(grammars, calls.calls(1, trigger), text.removeprefix(trigger))


SAY = {
    "type": "object",
    "properties": {"words": {"type": "string"}, "loud": {"type": ["boolean", "null"]}},
    "required": ["words"],
}


def say(syntax: CallSyntax, words: str) -> str:
    """A call as the template would write it."""
    parameter = syntax.parameter
    if parameter is None:
        arguments = json.dumps({"words": words, "loud": True}, ensure_ascii=False)
    else:
        quoted, head = json.dumps(words, ensure_ascii=False), parameter.after_key
        if parameter.plain_strings:
            quoted = f"{parameter.text_quote}{words}{parameter.text_quote}"
            head = parameter.after_text_key or head
        first = f"{parameter.before_key}words{head}{quoted}{parameter.after_value}"
        second = f"{parameter.before_key}loud{parameter.after_key}true{parameter.after_value}"
        arguments = first + parameter.between + second
    call = f"{syntax.before_name}say{syntax.after_name}{arguments}{syntax.after_arguments}"
    return syntax.begin + call + syntax.between + call + syntax.end


@pytest.mark.parametrize("output_format", FORMATS, ids=lambda output_format: output_format.name)
def test_texts_may_hold_anything(grammars: Grammars, output_format: OutputFormat) -> None:
    tools = [{"type": "function", "function": {"name": "say", "parameters": SAY}}]
    calls = CallGrammar(output_format.syntax, tools, grammars.vocabulary)
    for words in ("hello", "two\nlines, {'and': <more>} é"):
        text = say(output_format.syntax, words)
        assert accepts(grammars, calls.calls(2), text), text
        assert not accepts(grammars, calls.calls(1), text)
        parser = Output(output_format, tools).parser()
        parts = (*parser.push(text), *parser.close())
        said = "".join(part.text for part in parts if isinstance(part, CallArguments) and part.index == 1)
        assert json.loads(said) == {"words": words, "loud": True}


def many(num_tools: int, num_properties: int) -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {f"p{number}": {"type": "integer"} for number in range(num_properties)},
        "required": ["p3"],
    }
    return [{"type": "function", "function": {"name": f"tool{i}", "parameters": parameters}} for i in range(num_tools)]


@pytest.mark.parametrize("output_format", FORMATS, ids=lambda output_format: output_format.name)
@pytest.mark.parametrize(("num_tools", "num_properties"), [(150, 5), (2, 60)])
def test_agents_have_many_tools_and_some_of_many_parameters(
    grammars: Grammars, output_format: OutputFormat, num_tools: int, num_properties: int
) -> None:
    calls = CallGrammar(output_format.syntax, many(num_tools, num_properties), grammars.vocabulary)
    grammars.compile(calls.calls(16))
    if output_format.trigger:
        grammars.compile(calls.calls(16, output_format.trigger))


LOOK = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("choice", "tools", "problem"),
    [
        ({"type": "function", "function": {"name": "go"}}, [LOOK], "there is no tool 'go': must be one of look"),
        ({"type": "function", "function": {"name": "go"}}, None, "there is no tool 'go': the request has no tools"),
        ({"type": "function"}, [LOOK], "must be one of auto, none, required, or name a function"),
        ("any", [LOOK], "is 'any': must be one of auto, none, required, or name a function"),
    ],
)
def test_a_choice_that_cannot_be_is_told_what_can(choice: Any, tools: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(ApiError) as refused:
        choose_tools(choice, tools)
    assert refused.value.message == f"tool_choice: {problem}"
