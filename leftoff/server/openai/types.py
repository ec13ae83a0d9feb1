"""The body of /v1/completions. That of chat completions is the common one (`request/fields.py`)."""

from typing import Annotated

from msgspec import Meta, Raw

from leftoff.server.request.fields import GenerationFields, NumReplies, StreamOptions


class CompletionRequest(GenerationFields, kw_only=True):
    """A prompt of any form that `RawPrompts` reads, and how to sample its replies."""

    prompt: Raw
    n: NumReplies | None = None
    best_of: NumReplies | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    echo: bool | None = None
    suffix: str | None = None
