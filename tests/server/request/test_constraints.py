"""How much a model shall think: every dialect has its words for it, and templates know four."""

from typing import Any

import msgspec
import pytest

from leftoff.server.anthropic import convert as anthropic_chat
from leftoff.server.anthropic.types import MessagesRequest
from leftoff.server.ollama import convert as ollama_chat
from leftoff.server.ollama.types import OllamaChatRequest
from leftoff.server.request.fields import ChatRequest, Message
from leftoff.server.responses import convert as responses_chat
from leftoff.server.responses.types import ResponsesRequest

HELLO = [{"role": "user", "content": "hello"}]


def openai(effort: str) -> dict[str, Any]:
    return msgspec.convert({"messages": HELLO, "reasoning_effort": effort}, ChatRequest).template_options


def responses(effort: str) -> dict[str, Any]:
    body = msgspec.convert({"input": "hello", "reasoning": {"effort": effort}}, ResponsesRequest)
    return responses_chat.as_chat(body, [Message("user", "hello")], []).template_options


def ollama(effort: str) -> dict[str, Any]:
    body = msgspec.convert({"messages": HELLO, "think": effort}, OllamaChatRequest)
    return ollama_chat.messages_as_chat(body).template_options


def anthropic(effort: str) -> dict[str, Any]:
    fields = {"messages": HELLO, "thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    body = msgspec.convert(fields, MessagesRequest)
    return anthropic_chat.as_chat(body, anthropic_chat.MarkedMessages(body).messages).template_options


@pytest.mark.parametrize("options_of", [openai, responses, ollama, anthropic])
@pytest.mark.parametrize(
    ("effort", "told"),
    [
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
        ("dreamy", "dreamy"),
    ],
)
def test_templates_hear_of_efforts_that_they_know(options_of: Any, effort: str, told: str) -> None:  # noqa: ANN401
    assert options_of(effort) == {"reasoning_effort": told, "enable_thinking": True}


@pytest.mark.parametrize("options_of", [openai, responses])
def test_no_effort_is_no_thought(options_of: Any) -> None:  # noqa: ANN401
    assert options_of("none") == {"reasoning_effort": "none", "enable_thinking": False}


def test_what_is_said_in_so_many_words_holds() -> None:
    fields = {"messages": HELLO, "reasoning_effort": "high", "enable_thinking": False}
    assert msgspec.convert(fields, ChatRequest).template_options["enable_thinking"] is False
    body = msgspec.convert({"messages": HELLO, "output_config": {"effort": "high"}}, MessagesRequest)
    chat = anthropic_chat.as_chat(body, anthropic_chat.MarkedMessages(body).messages)
    assert chat.template_options["enable_thinking"] is False, "who does not ask Anthropic for thoughts gets none"
    assert "enable_thinking" not in msgspec.convert({"messages": HELLO}, ChatRequest).template_options
