"""Chat messages on the wire, shared by the dialects that speak of messages as OpenAI does."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins

from leftoff.chat.conversation import Conversation
from leftoff.chat.formats.base import OutputFormat, function_of
from leftoff.chat.formats.parser import Output
from leftoff.chat.template.render import MessageDict
from leftoff.server.http.errors import bad_field
from leftoff.server.request.fields import GenerationFields

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
# llama-server's. All that split the reasoning off mean the same here.
ReasoningFormat = Literal["none", "auto", "deepseek", "deepseek-legacy"]
# More than the longest sessions of agents have; rendering as many takes a few tenths of a second.
MOST_MESSAGES = 1 << 14
MOST_TOOLS = 1024
_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}  # templates know none, low, medium and high
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


class Part(Struct, omit_defaults=True):
    """A piece of a message's content. Only text can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(Struct, omit_defaults=True):
    name: str
    arguments: str | dict[str, Any] = ""


class ToolCall(Struct, omit_defaults=True):
    function: FunctionCall
    id: str | None = None
    type: str | None = None


class Message(Struct, omit_defaults=True):
    role: Role
    content: str | Annotated[list[Part], Meta(max_length=MOST_MESSAGES)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MOST_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChatFields(GenerationFields, kw_only=True):
    """What a chat prompt is made from, and how to go on from it."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MOST_MESSAGES)]
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_format: ReasoningFormat | None = None

    @property
    def template_options(self) -> dict[str, Any]:
        """What the template may look at beside messages and tools; `chat_template_kwargs` has the last word."""
        options: dict[str, Any] = {}
        if effort := self.reasoning_effort:
            options["reasoning_effort"] = _EFFORTS.get(effort, effort)
            options["enable_thinking"] = effort != "none"
        if self.enable_thinking is not None:
            options["enable_thinking"] = self.enable_thinking
        return options | (self.chat_template_kwargs or {})

    @property
    def offered_tools(self) -> list[dict[str, Any]] | None:
        """Refuses those that nobody could call, by their place."""
        for index, tool in enumerate(self.tools or ()):
            name = function_of(tool).get("name")
            if not isinstance(name, str) or not name:
                raise bad_field(f"tools[{index}].function.name", "must be a text: a tool is called by its name")
        return self.tools or None

    @property
    def tool_places(self) -> dict[str, str]:
        """What a client calls the schema of a tool, by the tool's name."""
        return {
            name: f"tools[{index}].{'function.' if 'function' in tool else ''}parameters"
            for index, tool in enumerate(self.tools or ())
            if isinstance(name := function_of(tool).get("name"), str)
        }

    @property
    def may_call(self) -> bool:
        return self.tool_choice != "none"

    def output(self, output_format: OutputFormat) -> Output:
        """How to read the reply."""
        return Output(
            output_format,
            tuple(self.offered_tools or ()) if self.may_call else (),
            splits_reasoning=self.reasoning_format != "none",
            one_call=self.parallel_tool_calls is False,
        )

    def conversation(self, namespace: str, *, shows_all_tools: bool) -> Conversation:
        """For the chat layer. Refuses content that is not text, and tools without a name, by their place.

        Unless all tools are shown, the template sees them only if the model may call them.
        """
        tools = self.offered_tools
        return Conversation(
            [self._plain(index, message) for index, message in enumerate(self.messages)],
            tools if self.may_call or shows_all_tools else None,
            self.template_options,
            namespace,
            self.add_generation_prompt is not False,
        )

    def _plain(self, index: int, message: Message) -> MessageDict:
        parts = message.content if isinstance(message.content, list) else []
        for at, part in enumerate(parts):
            if part.type not in _TEXT_PARTS:
                place = f"messages[{index}].content[{at}]"
                raise bad_field(place, f"a part of type {part.type!r} cannot be read: this server takes text only")
        plain: dict[str, Any] = to_builtins(message)
        if parts:
            plain["content"] = "".join(part.text or part.refusal or "" for part in parts)
        return plain
