"""The fields that requests share on the wire, whatever their dialect: how to generate, and the chat to reply to.

Every dialect with chats converts its own body to a `ChatRequest`: OpenAI's fields with llama-server's additions.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field, to_builtins

from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.formats.base import OutputFormat
from leftoff.chat.formats.offered_tools import function_of
from leftoff.chat.formats.parser import Output
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.server.http.errors import bad_field
from leftoff.server.request.content import Attached, Part, picture_texts
from leftoff.server.request.sampling import Limit, SamplingFields
from leftoff.setting import MAX_SCALE

Schema = dict[str, Any]
# Each is looked for in every piece of the reply, on the engine's thread: a few milliseconds a token at the very most.
Stop = Annotated[str, Meta(max_length=256)]
Stops = Annotated[list[Stop], Meta(max_length=128)]


class StructuredOutputs(Struct):
    """vLLM's way to ask for a grammar: exactly one of the fields is set."""

    json: Schema | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class JsonSchema(Struct):
    """OpenAI's `response_format.json_schema`."""

    schema: Schema | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct):
    """The form of a reply: text, any JSON, JSON by a schema, or a regular expression."""

    type: str = "text"
    json_schema: JsonSchema | None = None
    schema: Schema | None = None  # llama-server's place for it
    pattern: str | None = None  # with type "regex"

    def field(self, path: str) -> str:
        """The path of one of its parts in the request, for error messages."""
        return f"response_format.{path}"


class ForeignFormat(ResponseFormat, kw_only=True):
    """A response format of another dialect; errors name it by `place`, its path there."""

    place: str

    def field(self, path: str) -> str:  # noqa: ARG002
        return self.place


class LoraScale(Struct):
    """How strongly an adapter acts, by its number in GET /lora-adapters."""

    id: int
    scale: Annotated[float, Meta(ge=-MAX_SCALE, le=MAX_SCALE)] = 1.0


class GenerationFields(SamplingFields, kw_only=True):
    """Fields that all dialects and routes share: sampling, limits, stop strings, streaming, constraints."""

    stop: Stop | Stops | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    n_predict: Limit | None = None
    ignore_eos: bool | None = None

    stream: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    cache_prompt: bool | None = None  # accepted and ignored: the cache does not change replies
    cache_salt: str | None = None
    model: str | None = None
    lora: Annotated[list[LoraScale], Meta(max_length=256)] | None = None  # llama-server's
    user: str | None = None

    response_format: ResponseFormat | None = None  # OpenAI's
    grammar: str | None = None  # llama-server's, and so is the next
    json_schema: Schema | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None  # vLLM's former names for the same
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def scales(self) -> list[tuple[int, float]] | None:
        """Those of the adapters, by their numbers, if the request gives them."""
        return None if self.lora is None else [(each.id, each.scale) for each in self.lora]

    @property
    def length_limit(self) -> int | None:
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((limit for limit in limits if limit is not None), None)


Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
# llama-server's. All that split the reasoning off mean the same here.
ReasoningFormat = Literal["none", "auto", "deepseek", "deepseek-legacy"]
# More than the longest sessions of agents have; rendering as many takes a few tenths of a second.
MAX_MESSAGES = 1 << 14
MAX_TOOLS = 1024
_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}  # templates know none, low, medium and high


class FunctionCall(Struct, omit_defaults=True):
    """The function and arguments of a call in a message."""

    name: str
    arguments: str | dict[str, Any] = ""


class ToolCall(Struct, omit_defaults=True):
    """A call in a message of the assistant."""

    function: FunctionCall
    id: str | None = None
    type: str | None = None


class Message(Struct, omit_defaults=True):
    """One message of a chat, in OpenAI's form."""

    role: Role
    content: str | Annotated[list[Part], Meta(max_length=MAX_MESSAGES)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


NumReplies = Annotated[int, Meta(ge=1, le=128)]

_SHOWN_CHARACTERS = 200


class StreamOptions(Struct):
    """OpenAI's `stream_options`, and vLLM's `continuous_usage_stats`: usage so far in every chunk, as guidellm asks."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None

    @property
    def is_usage_continuous(self) -> bool:
        return bool(self.include_usage and self.continuous_usage_stats)


class ChatRequest(GenerationFields, kw_only=True):
    """A chat, how to generate the reply to it, and how many replies are wanted."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_format: ReasoningFormat | None = None

    n: NumReplies | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    functions: list[dict[str, Any]] | None = None  # what OpenAI had before `tools`; refused, and so is the next
    function_call: str | dict[str, Any] | None = None

    @property
    def template_options(self) -> dict[str, Any]:
        """Variables for the template. `chat_template_kwargs` overrides the other fields."""
        options: dict[str, Any] = {}
        if effort := self.reasoning_effort:
            options["reasoning_effort"] = _EFFORTS.get(effort, effort)
            options["enable_thinking"] = effort != "none"
        if self.enable_thinking is not None:
            options["enable_thinking"] = self.enable_thinking
        return options | (self.chat_template_kwargs or {})

    def tool_place(self, name: str) -> str:
        """The path of a tool's schema in the request, for error messages."""
        places = {
            tool_name(tool): f"tools[{index}].{'function.' if 'function' in tool else ''}parameters"
            for index, tool in enumerate(self.tools or ())
        }
        return places[name]

    @property
    def may_call(self) -> bool:
        return self.tool_choice != "none"

    def output(self, output_format: OutputFormat) -> Output:
        """How to parse the reply."""
        return Output(
            output_format,
            tuple(self.tools or ()) if self.may_call else (),
            splits_reasoning=self.reasoning_format != "none",
            one_call=self.parallel_tool_calls is False,
        )

    def conversation(self, namespace: str, *, shows_all_tools: bool, attached: Attached | None = None) -> Conversation:
        """The conversation for the chat layer. Content of unknown types, and tools without a name, are refused by path.

        Unless all tools are shown, the template sees them only if the model may call them.
        """
        attached = attached or Attached()
        for index, tool in enumerate(self.tools or ()):
            if not tool_name(tool):
                raise bad_field(f"tools[{index}].function.name", "must be a text: a tool is called by its name")
        return Conversation(
            [_plain(message, index, attached) for index, message in enumerate(self.messages)],
            (self.tools or None) if self.may_call or shows_all_tools else None,
            self.template_options,
            namespace,
            self.add_generation_prompt is not False,
            attached.pictures,
        )

    def picture_texts(self) -> Iterator[str | None]:
        return (text for message in self.messages for text in picture_texts(message.content))

    @property
    def notes(self) -> tuple[Note, ...]:
        """Parts of the request that were dropped when it was converted, for the reuse report."""
        return ()


def _plain(message: Message, index: int, attached: Attached) -> MessageDict:
    """The message for the chat layer: its content is text."""
    content = message.content
    if not isinstance(content, list):
        plain: dict[str, Any] = to_builtins(message)
        return plain
    text = attached.text(content, f"messages[{index}].content") if content else []
    return {**to_builtins(msgspec.structs.replace(message, content=None)), "content": text}


def tool_name(tool: ToolDict) -> str:
    """The name of a function; empty if it has none."""
    name = function_of(tool).get("name")
    return name if isinstance(name, str) else ""


class ForeignChat(ChatRequest, kw_only=True):
    """A chat converted from another dialect. Errors name its fields as that does.

    `tool_places` maps a tool's name to the path of its schema there. `skipped_tools` are no functions: most of them
    only the servers of that dialect can run.
    """

    tool_places: dict[str, str] = field(default_factory=dict)
    skipped_tools: list[str] = field(default_factory=list)

    def tool_place(self, name: str) -> str:
        return self.tool_places.get(name) or ChatRequest.tool_place(self, name)

    @property
    def notes(self) -> tuple[Note, ...]:
        names = ", ".join(self.skipped_tools)[:_SHOWN_CHARACTERS]
        return (Note("dropped", f"tools that are no functions were left out: {names}"),) if names else ()


def chat_body(body: GenerationFields, **fields: Any) -> ForeignChat:  # noqa: ANN401
    """Build the common chat body: the generation fields of `body`, overridden by `fields`."""
    return ForeignChat(**{name: getattr(body, name) for name in GenerationFields.__struct_fields__} | fields)


def function_tool(name: str, description: str | None, parameters: dict[str, Any] | None) -> dict[str, Any]:
    """A tool in OpenAI's shape, which templates expect. Without parameters it takes none."""
    function = {"name": name, "description": description, "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}
