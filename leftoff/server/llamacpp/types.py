"""llama-server's wire types."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from leftoff.server.reply.usage import PromptProgress, TokenLogprob, WireTimings
from leftoff.server.request.fields import GenerationFields

# --- requests


class NativeRequest(GenerationFields, kw_only=True):
    """A prompt of any form that `RawPrompts` reads, and how to sample its replies."""

    prompt: Raw
    n_probs: Annotated[int, Meta(ge=0, le=100)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=128)] | None = None
    return_tokens: bool | None = None
    id_slot: int | None = None  # ignored: slots are chosen by the prefix they hold


class TokenizeRequest(Struct):
    """The body of /tokenize: `content` with llama-server's fields, or `prompt` with vLLM's."""

    content: str | None = None
    prompt: str | None = None
    add_special: bool = False
    add_special_tokens: bool = True
    parse_special: bool = True
    with_pieces: bool = False


class SlotRequest(Struct):
    """The body of /slots/{id}, where its action wants one."""

    filename: str


class DetokenizeRequest(Struct):
    """The body of /detokenize."""

    tokens: list[Any]


# --- replies

GenerationSettings = dict[str, Any]  # every field of `Sampling`, and the limits of the reply


class NativeChunk(Struct):
    """A token of a streamed reply."""

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


class NativeCompletion(NativeChunk, kw_only=True):
    """A whole reply, or the last chunk of a streamed one."""

    model: str
    prompt: str
    tokens_cached: int
    truncated: bool
    stop_type: str
    stopping_word: str
    has_new_line: bool
    generation_settings: GenerationSettings


class SlotState(Struct):
    """One slot. Its request is shown while it runs, to the tenant it belongs to."""

    id: int
    n_ctx: int
    is_processing: bool
    speculative: bool
    n_tokens: int | UnsetType = UNSET  # in its sequence
    id_task: str | UnsetType = UNSET
    n_prompt_tokens: int | UnsetType = UNSET
    n_prompt_tokens_processed: int | UnsetType = UNSET
    n_prompt_tokens_cache: int | UnsetType = UNSET
    params: GenerationSettings | UnsetType = UNSET
    next_token: list[dict[str, Any]] | UnsetType = UNSET
