"""llama-server's wire types."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

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
    model: str | None = None
    add_special: bool = False
    add_special_tokens: bool = True
    parse_special: bool = True
    with_pieces: bool = False


class ModelRequest(Struct):
    """The body of /models/load and /models/unload."""

    model: str


class SlotRequest(Struct):
    """The body of /slots/{id}, where its action wants one."""

    filename: str


class DetokenizeRequest(Struct):
    """The body of /detokenize."""

    tokens: list[Any]
    model: str | None = None


# --- replies


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
    params: dict[str, Any] | UnsetType = UNSET  # every field of `Sampling`, and the limits of the reply
    next_token: list[dict[str, Any]] | UnsetType = UNSET
    model: str | UnsetType = UNSET  # where there are several
