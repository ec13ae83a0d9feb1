"""OpenAI's wire types: what is asked and answered under /v1/chat/completions, /v1/completions and /v1/models."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from leftoff.server.reply.logprobs import TokenLogprob
from leftoff.server.reply.usage import PromptProgress, Usage, WireTimings
from leftoff.server.request.chat import NumReplies, StreamOptions
from leftoff.server.request.fields import GenerationFields

FinishReason = Literal["stop", "length", "tool_calls"]

# --- asked


class CompletionRequest(GenerationFields, kw_only=True):
    prompt: Any
    model: str | None = None
    n: NumReplies | None = None
    best_of: NumReplies | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    echo: bool | None = None
    suffix: str | None = None


# --- answered


class ChatLogprobs(Struct):
    content: list[TokenLogprob]


class TextLogprobs(Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class MadeFunction(Struct):
    name: str
    arguments: str


class MadeCall(Struct):
    id: str
    function: MadeFunction
    type: str = "function"


class ReplyMessage(Struct):
    """`content` is null where there are only calls."""

    content: str | None
    role: str = "assistant"
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[MadeCall] | UnsetType = UNSET


class FunctionDelta(Struct):
    name: str | UnsetType = UNSET
    arguments: str = ""


class CallDelta(Struct):
    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Delta(Struct):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChatChoice(Struct):
    index: int
    message: ReplyMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class ChunkChoice(Struct):
    index: int
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None


class TextChoice(Struct):
    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: TextLogprobs | None = None


class ChatCompletion(Struct):
    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: WireTimings
    object: str = "chat.completion"


class ChatChunk(Struct):
    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType = UNSET
    timings: WireTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


class Completion(Struct):
    """Whole, and as a chunk of a stream: the old dialect has one shape for both."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    object: str = "text_completion"
    usage: Usage | UnsetType = UNSET
    timings: WireTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


class ModelMeta(Struct):
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_params: int
    size: int


class ModelCard(Struct):
    """For OpenAI's clients and for Anthropic's: they ask at the same place, and pass over what they do not know."""

    id: str
    created: int
    meta: ModelMeta
    display_name: str
    created_at: datetime
    object: str = "model"
    owned_by: str = "leftoff"
    type: str = "model"


class ModelList(Struct):
    data: list[ModelCard]
    object: str = "list"
    has_more: bool = False
