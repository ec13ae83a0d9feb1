"""The format of a model's replies is found in its template, and reads what the template writes."""

import json
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from leftoff.chat.formats.detect import find_format, shown_tokens
from leftoff.chat.formats.hermes import HermesCalls
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import Call
from leftoff.chat.formats.tagged import TaggedFormat
from leftoff.chat.template.quirks import find_quirks
from leftoff.chat.template.render import CHATML, ChatTemplate
from leftoff.chat.tokenizer import TextStream
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import Vocabulary
from leftoff.hub.reference import default_model
from leftoff.types import ReasoningTags
from tests.chat.formats.forms import FORMATS, TEMPLATES, TOOL, read
from tests.chat.shared import shared_files

REAL = {
    "GLM-4.6": "glm",
    "HuggingFaceTB-SmolLM3-3B": "generic",
    "Kimi-K2-Thinking": "kimi",
    "LFM2.5-Instruct": "lfm2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen_xml",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen_xml",
    "Qwen3.5-4B": "qwen_xml",
    "deepseek-ai-DeepSeek-V4": "dsml",
    "google-gemma-4-31B-it": "gemma",
    "ibm-granite-granite-4.0": "hermes",
    "llama-cpp-rwkv-world": "generic",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "openai-gpt-oss-120b": "harmony",
}
PATHS = shared_files("templates/*.jinja")
ENDS = ("<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|call|>", "<｜end▁of▁sentence｜>", "<|tool_response>")  # noqa: RUF001
ARGUMENTS = {"days": 3, "options": {"a": [1, "x"]}, "place": 'har"b\nour'}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_format_is_known_by_its_tags(name: str) -> None:
    assert FORMATS[name].name == name.partition(" ")[0]


def test_a_template_without_tools_has_the_generic_one() -> None:
    assert find_format(ChatTemplate(CHATML)).name == "generic"


@pytest.mark.skipif(not PATHS, reason="needs the templates of real models, which are not in the repository")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_a_real_template_writes_is_read(path: Path) -> None:
    template = ChatTemplate(path.read_text())
    shape, output_format = find_quirks(template), find_format(template)
    assert output_format.name == REAL[path.stem]

    question: dict[str, Any] = {"role": "user", "content": "question?"}
    function = {"name": "look_up", "arguments": json.dumps(ARGUMENTS)}
    call: dict[str, Any] = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "123456789", "function": function}],
    }
    tools = shape.tools([TOOL])
    prompt = template.render(shape.messages([question]), tools=tools)
    whole = template.render(shape.messages([question, call]), tools=tools, add_generation_prompt=False)
    reply = whole[
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False))) :
    ].rstrip()
    for end in ENDS:
        reply = reply.removesuffix(end)
    if path.stem.startswith("google-gemma"):  # it begins a reply with an empty thought, but not in its history
        reply = "<|" + reply
    said = read(Output(output_format, [TOOL]), reply, prompt)
    assert (said.content.strip(), said.reasoning) == ("", "")
    assert [(call.name, json.loads(call.arguments)) for call in said.calls] == [("look_up", ARGUMENTS)]


@pytest.fixture
def vocabulary() -> Iterator[Vocabulary]:
    model = Model(default_model())
    yield model.vocabulary
    model.close()


class Spoken(HermesCalls):
    """Calls that begin with what is a control token of the model."""

    triggers = ("<|im_start|>",)


def test_control_tokens_that_steer_are_shown_and_no_others(vocabulary: Vocabulary) -> None:
    shown = shown_tokens(TaggedFormat("spoken", Spoken(), ReasoningTags()), vocabulary)
    tokens = vocabulary.tokenize("<|im_start|>hello<|im_end|>").tolist()
    assert shown == {tokens[0]}
    stream = TextStream(vocabulary, shown=shown)
    assert "".join(map(stream.push, tokens)) == "<|im_start|>hello"
    assert shown_tokens(FORMATS["harmony"], vocabulary) == frozenset(), "this model has none of those"


def test_the_reply_may_begin_within_reasoning() -> None:
    output = Output(FORMATS["hermes"], [TOOL])
    text = 'first this\n</think>\n\n<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'
    said = read(output, text, "<|im_start|>assistant\n<think>\n")
    assert (said.reasoning, said.content, said.calls) == ("first this", "", (Call("look_up", "{}"),))
    assert read(output, "no tags", "<|im_start|>assistant\n<think>\n\n</think>\n\n").content == "no tags"
