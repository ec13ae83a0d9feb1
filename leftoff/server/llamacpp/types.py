"""llama-server's wire types, by its field names."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from leftoff.server.reply.logprobs import TokenLogprob
from leftoff.server.reply.usage import PromptProgress, WireTimings
from leftoff.server.request.fields import GenerationFields

# --- asked


class NativeRequest(GenerationFields, kw_only=True):
    prompt: Any
    n_probs: Annotated[int, Meta(ge=0, le=100)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=128)] | None = None
    return_tokens: bool | None = None
    id_slot: int | None = None  # slots are chosen by what they hold, not by number


class TokenizeRequest(Struct):
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Struct):
    tokens: list[Any]


# --- answered


GenerationSettings = dict[str, Any]  # every field of `Sampling`, and how long the reply may be


class NativeChunk(Struct):
    index: int
    content: str
    tokens: list[int]
    tokens_predicted: int
    tokens_evaluated: int
    stop: bool = False
    id_slot: int = -1
    timings: WireTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    completion_probabilities: list[TokenLogprob] | UnsetType = UNSET


class NativeCompletion(Struct):
    index: int
    content: str
    tokens: list[int]
    model: str
    prompt: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    stop_type: str
    stopping_word: str
    has_new_line: bool
    generation_settings: GenerationSettings
    timings: WireTimings
    stop: bool = True
    id_slot: int = -1
    completion_probabilities: list[TokenLogprob] | UnsetType = UNSET


class TokenPiece(Struct):
    """`piece` is a list of bytes where it is not a text by itself."""

    id: int
    piece: str | list[int]


class TokenizeReply(Struct):
    tokens: list[int] | list[TokenPiece]


class DetokenizeReply(Struct):
    content: str


class TemplateReply(Struct):
    prompt: str


class NextToken(Struct):
    has_next_token: bool
    n_remain: int
    n_decoded: int


class SlotState(Struct):
    """One slot. What it was asked for is there while it is at work for the tenant who looks."""

    id: int
    n_ctx: int
    is_processing: bool
    speculative: bool = False
    n_tokens: int | UnsetType = UNSET  # that its sequence holds
    id_task: str | UnsetType = UNSET
    n_prompt_tokens: int | UnsetType = UNSET
    n_prompt_tokens_processed: int | UnsetType = UNSET
    n_prompt_tokens_cache: int | UnsetType = UNSET
    params: GenerationSettings | UnsetType = UNSET
    next_token: list[NextToken] | UnsetType = UNSET


class DefaultSettings(Struct):
    n_ctx: int
    params: GenerationSettings
    id: int = 0
    speculative: bool = False
    is_processing: bool = False


class Props(Struct):
    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_caps: dict[str, bool]
    modalities: dict[str, bool]
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool = False
