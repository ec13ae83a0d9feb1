"""Anthropic's requests as chats: content blocks become messages, and `cache_control` marks resume points."""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec.json import encode

from leftoff.chat.conversation import DEFERRED
from leftoff.server.anthropic.types import (
    InputBlock,
    InputMessage,
    MessagesRequest,
    OutputFormat,
    Source,
    Tool,
    ToolChoice,
)
from leftoff.server.http.body import convert
from leftoff.server.http.errors import bad_field, missing_field
from leftoff.server.request.content import ForeignPart, joined
from leftoff.server.request.fields import (
    ChatRequest,
    ForeignFormat,
    FunctionCall,
    Message,
    ToolCall,
    chat_body,
    function_tool,
)

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
# Reasoning that only Anthropic's servers can decrypt, and the tools that they run themselves.
_SKIPPED = ("redacted_thinking", "server_tool_use", "mcp_tool_use")


# A content block, and its path in the request for error messages.
Placed = tuple[str, InputBlock]


class MarkedMessages:
    """The messages of a request. `indices` are of those with `cache_control`: a snapshot is kept at their end."""

    def __init__(self, body: MessagesRequest) -> None:
        self.messages: list[Message] = []
        self.indices: set[int] = set()
        self._tools = {tool.name: tool for tool in body.tools or ()}
        if body.system:
            self._add_words("system", _blocks(body.system, "system"))
        for index, message in enumerate(body.messages):
            self._add(message, f"messages[{index}].content")

    def _add(self, message: InputMessage, place: str) -> None:
        blocks = _blocks(message.content, place)
        match message.role:
            case "system":
                self._add_words("system", blocks)
            case "user":
                self._add_turn(blocks)
            case "assistant":
                self._add_reply(blocks)

    def _add_turn(self, blocks: list[Placed]) -> None:
        """A user's message: each tool result becomes a message of its own."""
        words: list[Placed] = []
        for place, block in blocks:
            if block.type != "tool_result":
                words.append((place, block))
                continue
            if words:
                self._add_words("user", words)
                words = []
            result = joined(self._result(_inner_blocks(block.content, f"{place}.content")), "\n")
            self._push(Message("tool", result, tool_call_id=block.tool_use_id), [(place, block)])
        if words or not blocks:
            self._add_words("user", words)

    def _result(self, blocks: list[Placed]) -> Iterator[str | ForeignPart]:
        """The parts of a tool result. A search for tools finds references: the model is told what they refer to."""
        for placed in blocks:
            tool = self._tools.get(placed[1].tool_name or "")
            if placed[1].type != "tool_reference":
                yield from _parts([placed])
            elif tool is not None and tool.input_schema is not None:
                yield encode(function_tool(tool.name, tool.description, tool.input_schema)).decode()
            else:
                yield f"tool {placed[1].tool_name}"

    def _add_reply(self, blocks: list[Placed]) -> None:
        words = [(place, block) for place, block in blocks if block.type not in ("thinking", "tool_use")]
        thoughts = "".join(block.thinking or "" for _, block in blocks if block.type == "thinking")
        calls = [_call(block, place) for place, block in blocks if block.type == "tool_use"]
        said = joined(_parts(words))
        self._push(Message("assistant", said, tool_calls=calls or None, reasoning_content=thoughts or None), blocks)

    def _add_words(self, role: Literal["system", "user"], blocks: list[Placed]) -> None:
        self._push(Message(role, joined(_parts(blocks), "\n")), blocks)

    def _push(self, message: Message, blocks: list[Placed]) -> None:
        if any(block.cache_control for _, block in blocks):
            self.indices.add(len(self.messages))
        self.messages.append(message)


def as_chat(body: MessagesRequest, messages: list[Message]) -> ChatRequest:
    """The request as a chat with these messages. Tools without a schema are skipped: Anthropic's servers run them."""
    choice, config = body.tool_choice, body.output_config
    tools = [*enumerate(body.tools or ())]
    return chat_body(
        body,
        messages=messages,
        tools=[_function(tool, index) for index, tool in tools if tool.input_schema is not None] or None,
        skipped_tools=[tool.name or tool.type or "?" for _, tool in tools if tool.input_schema is None],
        tool_places={tool.name: f"tools[{index}].input_schema" for index, tool in tools},
        tool_choice=_choice(choice) if choice else None,
        parallel_tool_calls=not choice.disable_parallel_tool_use if choice else None,
        stop=body.stop_sequences or body.stop,
        # As from Anthropic, no reasoning unless it is asked for: such clients take the first block for the answer.
        enable_thinking=body.thinking is not None and body.thinking.type != "disabled",
        reasoning_effort=config.effort if config else None,
        response_format=_format(config.format) if config and config.format else body.response_format,
        chat_template_kwargs=body.chat_template_kwargs,
    )


def _blocks(content: str | list[InputBlock], place: str) -> list[Placed]:
    blocks = [InputBlock("text", content)] if isinstance(content, str) else content
    return [(f"{place}[{at}]", block) for at, block in enumerate(blocks)]


def _parts(blocks: list[Placed]) -> Iterator[str | ForeignPart]:
    for place, block in blocks:
        if block.type in _SKIPPED or block.type.endswith("_tool_result"):
            continue
        match block.type:
            case "document":
                yield from _document(block, place)
            case "search_result":
                yield from filter(None, [block.title])
                yield from _plain_parts(block.content, f"{place}.content")
            case _:
                yield _plain_part(place, block)


def _document(block: InputBlock, place: str) -> Iterator[str | ForeignPart]:
    """A document's title, context and text, or the file that it is."""
    source: Source = convert(block.source, Source, f"{place}.source")
    yield from filter(None, (block.title, block.context))
    match source.type:
        case "text":
            yield source.data or ""
        case "content":
            yield from _plain_parts(source.content, f"{place}.source.content")
        case _:
            yield ForeignPart(block.type, file_data=source.data or source.url, place=place)


def _plain_parts(content: Any, place: str) -> Iterator[str | ForeignPart]:  # noqa: ANN401
    """The parts of content whose blocks have no blocks in them."""
    return (_plain_part(*placed) for placed in _inner_blocks(content, place))


def _plain_part(place: str, block: InputBlock) -> str | ForeignPart:
    if block.type == "image" and block.source is not None:
        source: Source = convert(block.source, Source, f"{place}.source")
        return ForeignPart(block.type, image_url=source.data or source.url, place=place)
    if block.type != "text":
        return ForeignPart(block.type, place=place)
    if block.text is None:
        raise missing_field(f"{place}.text")
    return block.text


def _inner_blocks(content: Any, place: str) -> list[Placed]:  # noqa: ANN401
    """The content of a block, which is a text or blocks again."""
    return _blocks(convert(content or "", str | list[InputBlock], place), place)


def _call(block: InputBlock, place: str) -> ToolCall:
    if not block.name:
        raise missing_field(f"{place}.name")
    if not isinstance(block.input, dict):
        raise bad_field(f"{place}.input", "must be an object")
    return ToolCall(FunctionCall(block.name, block.input), block.id, "function")


def _function(tool: Tool, index: int) -> dict[str, Any]:
    if not tool.name:
        raise missing_field(f"tools[{index}].name")
    function = function_tool(tool.name, tool.description, tool.input_schema)
    return function | {DEFERRED: True} if tool.defer_loading else function


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.type != "tool":
        return _CHOICES[choice.type]
    if not choice.name:
        raise missing_field("tool_choice.name")
    return {"type": "function", "function": {"name": choice.name}}


def _format(wanted: OutputFormat) -> ForeignFormat:
    return ForeignFormat(wanted.type, schema=wanted.schema, place="output_config.format")
