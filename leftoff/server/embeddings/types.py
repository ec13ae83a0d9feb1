"""The bodies of requests for vectors and scores."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct, field

MAX_TEXTS = 2048  # as many as OpenAI takes
MAX_NORM = 1 << 20

Text = str | dict[str, Any]  # Cohere's and Jina's documents may be objects with a text


class TextRequest(Struct, kw_only=True):
    """The fields that all these bodies have."""

    model: str | None = None
    cache_salt: str | None = None


class OpenAiRequest(TextRequest, kw_only=True):
    """The body of /v1/embeddings.

    To have long texts cut, clients of vLLM send `truncate_prompt_tokens`, and clients of Jina `truncate`.
    """

    input: Raw
    encoding_format: Literal["float", "base64"] | None = None  # numbers
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    truncate: bool = False


class EmbeddingRequest(TextRequest, kw_only=True):
    """The body of llama-server's own /embedding."""

    content: Raw = field(default_factory=Raw)
    input: Raw = field(default_factory=Raw)
    # the p of the norm; -1: none, 0: by the largest number
    embd_normalize: Annotated[int, Meta(ge=-1, le=MAX_NORM)] = 2
    truncate: bool = False


class OllamaRequest(TextRequest, kw_only=True):
    """The body of /api/embed."""

    input: Raw
    truncate: bool = True
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    keep_alive: Any = None


class OldOllamaRequest(TextRequest, kw_only=True):
    """The body of /api/embeddings, which newer clients do not use."""

    prompt: str
    keep_alive: Any = None


class RerankRequest(TextRequest, kw_only=True):
    """The body of Jina's and Cohere's /rerank; with `texts`, that of text-embeddings-inference."""

    query: Text
    documents: Annotated[list[Text], Meta(max_length=MAX_TEXTS)] | None = None
    texts: Annotated[list[Text], Meta(max_length=MAX_TEXTS)] | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False
    max_tokens_per_doc: Annotated[int, Meta(ge=1)] | None = None
    truncate: bool = False
    raw_scores: bool = False
    return_text: bool = False
