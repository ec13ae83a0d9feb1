"""OpenAI's wire types for /v1/chat/completions, /v1/completions and /v1/models."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from leftoff.server.reply.usage import PromptProgress, TokenLogprob, Usage, WireTimings
from leftoff.server.request.fields import GenerationFields, NumReplies, StreamOptions

FinishReason = Literal["stop", "length", "tool_calls"]

# --- requests


class CompletionRequest(GenerationFields, kw_only=True):
    """A prompt of any form that `RawPrompts` reads, and how to sample its replies."""

    prompt: Raw
    model: str | None = None
    n: NumReplies | None = None
    best_of: NumReplies | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    echo: bool | None = None
    suffix: str | None = None


# --- replies


class ChatLogprobs(Struct):
    """Log-probabilities in a chat completion."""

    content: list[TokenLogprob]


class TextLogprobs(Struct):
    """Log-probabilities in a text completion, as parallel lists. The first token of a prompt has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Function(Struct):
    """The function of a call, or a piece of its arguments."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class Call(Struct):
    """A tool call. In a stream, the first delta has `id`, `type` and the name, and the others more of the arguments."""

    function: Function
    index: int | UnsetType = UNSET  # in streams only
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Message(Struct):
    """A whole reply, or what a chunk adds to it. A whole reply of calls alone has null as `content`."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[Call] | UnsetType = UNSET


class ChatChoice(Struct):
    """One of the replies: `message` in a whole answer, `delta` in a chunk."""

    index: int
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None
    message: Message | UnsetType = UNSET
    delta: Message | UnsetType = UNSET


class TextChoice(Struct):
    """One text completion, or a piece of it."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: TextLogprobs | None = None


class Completion(Struct):
    """A whole answer, or a chunk of one: `object` says which. Only the last chunks have `usage` and `timings`."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[ChatChoice | TextChoice]
    usage: Usage | UnsetType = UNSET
    timings: WireTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
