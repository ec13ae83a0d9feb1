"""Ollama's requests as chats."""

from collections import deque
from itertools import count
from typing import Any

from leftoff.server.http.errors import bad_field, not_yet
from leftoff.server.ollama.types import Call, OllamaChatRequest, OllamaGenerateRequest, OllamaMessage, Options
from leftoff.server.request.content import ForeignPart, Part, joined
from leftoff.server.request.fields import (
    ChatRequest,
    ForeignFormat,
    FunctionCall,
    Message,
    ToolCall,
    chat_body,
)


def messages_as_chat(body: OllamaChatRequest) -> ChatRequest:
    """A chat in the common form."""
    messages = [_message(message, f"messages[{index}].") for index, message in enumerate(body.messages or ())]
    _name_calls(messages)
    return _common(body, messages, body.tools)


def prompt_as_chat(body: OllamaGenerateRequest) -> ChatRequest:
    """A prompt as a chat of one message, in the common form."""
    for name in ("suffix", "template"):
        if value := getattr(body, name):
            raise not_yet(name, value[:40], "leave it out")
    if body.raw and body.system:
        raise bad_field("system", "is not shown with raw, which has no template: put it into the prompt")
    header = [Message("system", body.system)] if body.system else []
    return _common(body, [*header, Message("user", _content(body.prompt, body.images, ""))])


def _common(
    body: OllamaChatRequest | OllamaGenerateRequest, messages: list[Message], tools: list[dict[str, Any]] | None = None
) -> ChatRequest:
    options = body.options or Options()
    limit = options.num_predict
    return chat_body(
        options,
        messages=messages,
        model=body.model,
        tools=tools,
        n_predict=options.n_predict if limit is None else max(limit, -1),
        enable_thinking=bool(body.think) if body.think is not None else None,
        reasoning_effort=body.think if isinstance(body.think, str) and body.think else None,
        response_format=_format(body.format) if body.format else options.response_format,
    )


def _message(message: OllamaMessage, place: str) -> Message:
    return Message(
        message.role,
        _content(message.content or "", message.images, place),
        name=message.tool_name,
        tool_calls=[_call(call) for call in message.tool_calls or ()] or None,
        tool_call_id=message.tool_call_id,
        reasoning_content=message.thinking,
    )


def _name_calls(messages: list[Message]) -> None:
    """Give calls and results ids, which some templates need. Ollama's results come in the order of the calls."""
    numbers, waiting = count(), deque[str]()
    for message in messages:
        for call in message.tool_calls or ():
            call.id = call.id or f"call{next(numbers):05}"
            waiting.append(call.id)
        if message.role == "tool" and message.tool_call_id is None and waiting:
            message.tool_call_id = waiting.popleft()


def _call(call: Call) -> ToolCall:
    return ToolCall(FunctionCall(call.function.name, call.function.arguments), call.id, "function")


def _format(wanted: str | dict[str, Any]) -> ForeignFormat:
    if isinstance(wanted, dict):
        return ForeignFormat("json_schema", schema=wanted, place="format")
    if wanted != "json":
        raise bad_field("format", f"is {wanted!r}: must be 'json' or a JSON schema")
    return ForeignFormat("json_object", place="format")


def _content(words: str, images: list[str] | None, place: str) -> str | list[Part]:
    """Ollama's models are shown the images before the words."""
    places = (f"{place}images[{index}]" for index in range(len(images or ())))
    pictures = (ForeignPart("image", image_url=image, place=at) for image, at in zip(images or (), places, strict=True))
    return joined((*pictures, words))
