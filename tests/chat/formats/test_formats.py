"""What models really write: forms that differ from the one they were told to use, and forms that are broken."""

import json

import pytest

from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import Call, ParsedReply
from tests.chat.formats.forms import FORMATS, TOOL, read

FREE_TOOL = {"type": "function", "function": {"name": "free", "parameters": {"type": "object"}}}
PLACE = Call("look_up", '{"place": "harbour"}')


def said(name: str, text: str) -> ParsedReply:
    return read(Output(FORMATS[name], [TOOL, FREE_TOOL]), text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"arguments": {"place": "harbour"}, "name": "look_up"}</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "look_up", "arguments": "{\\"place\\": \\"harbour\\"}"}\n</tool_call>'),
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"place": "harbour"}}'),
        ("qwen_xml", "<function=look_up><parameter=place>harbour</parameter></function>"),
        ("glm", "<tool_call>look_up<arg_key>place</arg_key><arg_value>harbour</arg_value></tool_call>"),
        ("mistral", '[TOOL_CALLS]look_up[CALL_ID]123456789[ARGS]{"place": "harbour"}'),
        ("mistral with names", '[TOOL_CALLS] [{"name": "look_up", "arguments": {"place": "harbour"}, "id": "1"}]'),
        ("lfm2", "<|tool_call_start|>[look_up(place='harbour')]<|tool_call_end|>"),
        ("lfm2", '<|tool_call_start|>[{"name": "look_up", "arguments": {"place": "harbour"}}]<|tool_call_end|>'),
        ("llama", '<|python_tag|>{"name": "look_up", "parameters": {"place": "harbour"}}'),
        ("llama", '{"type": "function", "name": "look_up", "parameters": {"place": "harbour"}}'),
        ("generic", '{"name": "look_up", "arguments": {"place": "harbour"}}'),
        ("harmony", '<|channel|>commentary to=functions.look_up<|message|>{"place": "harbour"}'),
        ("harmony", ' to=functions.look_up<|channel|>commentary json<|message|>{"place": "harbour"}<|call|>'),
    ],
)
def test_other_ways_to_write_a_call(name: str, text: str) -> None:
    assert said(name, text) == ParsedReply(calls=(PLACE,))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "The tag <tool_call> begins a call."),
        ("hermes", '<tool_call>\n{"name": "look_up", "place": "harbour"}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "look_up", "arguments": [1]}\n</tool_call>'),
        ("hermes", "<think is no tag"),
        ("qwen_xml", "Write <function=name> to call."),
        ("qwen_xml", "<tool_call>\n<function=look_up>\nno parameters</function>"),
        ("glm", "<tool_call>two words\n</tool_call>"),
        ("mistral", "[TOOL_CALLS] is a token"),
        ("llama", '{"name": "not_offered", "parameters": {}}'),
        ("llama", '{"answer": 42}'),
        ("generic", '[{"name": "look_up"}]'),
    ],
)
def test_what_is_no_call_is_content(name: str, text: str) -> None:
    assert said(name, text) == ParsedReply(text)


def test_the_rest_of_a_broken_call_is_content() -> None:
    text = '<tool_call>\n{"name": "look_up", "arguments": {"place": "harbour"}, oops\n</tool_call>'
    assert said("hermes", text) == ParsedReply(", oops\n</tool_call>", "", (PLACE,))


def test_a_reply_that_was_cut_off_has_half_a_call() -> None:
    (call,) = said("qwen_xml", "<tool_call>\n<function=look_up>\n<parameter=place>\nharb").calls
    assert call.arguments == '{"place": "harb'


def test_words_may_stand_around_calls() -> None:
    text = 'I look.\n\n<tool_call>{"name": "look_up", "arguments": {}}</tool_call>\n\nThen I wait.'
    assert said("hermes", text) == ParsedReply("I look.Then I wait.", "", (Call("look_up", "{}"),))


def test_a_value_may_speak_of_its_own_tags() -> None:
    value = "ends with </parameter>\nor so"
    text = f"<tool_call>\n<function=look_up>\n<parameter=place>\n{value}\n</parameter>\n</function>\n</tool_call>"
    (call,) = said("qwen_xml", text).calls
    assert json.loads(call.arguments) == {"place": value}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("place", "42", "42"),
        ("days", "42", 42),
        ("days", "many", "many"),
        ("exact", "True", True),
        ("note", "null", None),
        ("note", "nullify", "nullify"),
        ("options", '{"a": 1}', {"a": 1}),
        ("unknown", "42", 42),
        ("unknown", "forty-two", "forty-two"),
        ("unknown", "NaN", "NaN"),
    ],
)
def test_the_schema_tells_what_a_value_is(key: str, text: str, value: object) -> None:
    reply = f"<tool_call>look_up\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
    (call,) = said("glm", reply).calls
    assert json.loads(call.arguments) == {key: value}


def test_python_values_become_json() -> None:
    values = r"""a='it\'s\n', b=[1, 'x'], c={'k': None}, d=True, e=-1.5, f="\u00e9" """
    (call,) = said("lfm2", f"<|tool_call_start|>[free({values})]<|tool_call_end|>").calls
    assert json.loads(call.arguments) == {
        "a": "it's\n",
        "b": [1, "x"],
        "c": {"k": None},
        "d": True,
        "e": -1.5,
        "f": "é",
    }


@pytest.mark.parametrize("value", [r"'\ud83d\ude00'", r"['\ud83d\ude00']"])
def test_a_character_that_is_escaped_in_halves_can_be_sent(value: str) -> None:
    (call,) = said("lfm2", f"<|tool_call_start|>[free(a={value})]<|tool_call_end|>").calls
    assert "😀" in json.loads(call.arguments.encode())["a"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lfm2", r"<|tool_call_start|>[free(a='\ud83d')]<|tool_call_end|>"),
        ("gemma", r'<|tool_call>call:free{a:"\ud83d"}<tool_call|>'),
    ],
)
def test_half_a_character_stays_escaped(name: str, text: str) -> None:
    assert said(name, text) == ParsedReply(calls=(Call("free", r'{"a": "\ud83d"}'),))


def test_a_number_that_json_lacks_is_content() -> None:
    assert (
        said("lfm2", "<|tool_call_start|>[free(a=[1e999])]<|tool_call_end|>").content == "a=[1e999])]<|tool_call_end|>"
    )


def test_reasoning_is_recognised_before_the_first_word_only() -> None:
    assert said("hermes", "\n<think>\nhm\n</think>\n\nSo <think> is a tag.") == ParsedReply(
        "So <think> is a tag.", "hm"
    )


def test_reasoning_that_never_ends_is_reasoning() -> None:
    assert said("hermes", "<think>\non and on") == ParsedReply("", "on and on")


def test_a_call_within_reasoning_is_a_thought() -> None:
    text = '<think>\nmaybe <tool_call>{"name": "look_up", "arguments": {}}</tool_call>?\n</think>\n\nNo.'
    assert said("hermes", text) == ParsedReply(
        "No.", 'maybe <tool_call>{"name": "look_up", "arguments": {}}</tool_call>?'
    )


def test_channels_that_are_no_call() -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>First I look. <|end|>"
        "<|start|>assistant<|channel|>final<|message|>Calm.<|return|>"
    )
    assert said("harmony", text) == ParsedReply("First I look. Calm.", "hm")
