"""Vectors of texts, for clients of OpenAI, of Ollama and of llama-server."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from leftoff.host.embeddings import Vector
from leftoff.host.encoder import EncoderHost
from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.embeddings import types as wire
from leftoff.server.embeddings.texts import TextReader
from leftoff.server.http.endpoint import Endpoint, while_connected
from leftoff.server.http.errors import bad_field, missing_field
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
from leftoff.server.tenant import namespace_of
from leftoff.types import Tokens

_EUCLID = 2
_LARGEST = 32760.0  # what llama-server scales the largest number to


class EmbeddingRoutes(Dialect):
    """A text, or many, as vectors."""

    def endpoints(self) -> list[Endpoint]:
        native = Endpoint("POST", "/embedding", "Vectors, in llama-server's form", self.native, wire.EmbeddingRequest)
        return [
            Endpoint("POST", "/v1/embeddings", "Vectors of texts", self.openai, wire.OpenAiRequest),
            native,
            native.at("/embeddings"),
            Endpoint("POST", "/api/embed", "Vectors of texts", self.ollama, wire.OllamaRequest),
            Endpoint("POST", "/api/embeddings", "The vector of a text", self.old_ollama, wire.OldOllamaRequest),
        ]

    @while_connected
    async def openai(self, request: Request, body: wire.OpenAiRequest) -> Response:
        longest = body.truncate_prompt_tokens
        if longest == 0:
            raise bad_field("truncate_prompt_tokens", "is 0, which leaves no text: give 1 or more, or -1 for what fits")
        asked = await self._asked(request, body, "input", body.input, cuts=body.truncate, max_tokens=longest)
        vectors = await asked.unit_vectors(body.dimensions)
        shown = [*map(_base64, vectors)] if body.encoding_format == "base64" else _lists(vectors)
        return json_response(
            {
                "object": "list",
                "model": asked.host.name,
                "data": [{"object": "embedding", "index": i, "embedding": each} for i, each in enumerate(shown)],
                "usage": {"prompt_tokens": asked.num_tokens, "total_tokens": asked.num_tokens},
            }
        )

    @while_connected
    async def native(self, request: Request, body: wire.EmbeddingRequest) -> Response:
        place, data = ("content", body.content) if bytes(body.content) else ("input", body.input)
        if not bytes(data):
            raise missing_field("content")
        asked = await self._asked(request, body, place, data, cuts=body.truncate)
        vectors = [_normalised(vector, body.embd_normalize) for vector in await asked.vectors()]
        return json_response([{"index": i, "embedding": [each]} for i, each in enumerate(_lists(vectors))])

    @while_connected
    async def ollama(self, request: Request, body: wire.OllamaRequest) -> Response:
        asked = await self._asked(request, body, "input", body.input, cuts=body.truncate)
        vectors = _lists(await asked.unit_vectors(body.dimensions))
        return json_response(
            {"model": body.model or asked.host.name, "embeddings": vectors, "prompt_eval_count": asked.num_tokens}
        )

    @while_connected
    async def old_ollama(self, request: Request, body: wire.OldOllamaRequest) -> Response:
        prompt = msgspec.Raw(msgspec.json.encode(body.prompt))
        asked = await self._asked(request, body, "prompt", prompt, cuts=True)
        return json_response({"embedding": _lists(await asked.vectors())[0]})

    async def _asked(
        self,
        request: Request,
        body: wire.TextRequest,
        place: str,
        data: msgspec.Raw,
        *,
        cuts: bool = False,
        max_tokens: int | None = None,
    ) -> "_Asked":
        """The texts in the field at `place`. What is too long is cut if it `cuts`, or if `max_tokens` are given."""
        host = await self._hosts.embedding(body.model)
        shape = await host.embeddings.shape()
        if shape.ranks:
            raise bad_field("model", f"{host.name} gives scores, not vectors: ask it at /v1/rerank")
        reader = TextReader.of(host.model, shape, max_tokens, cuts=cuts)
        texts = await aside(host, lambda: reader.read(data, place), request)
        return _Asked(host, texts, namespace_of(request, body.cache_salt))


@dataclass(frozen=True)
class _Asked:
    """The texts of a request, and the host whose model embeds them."""

    host: ModelHost | EncoderHost
    texts: list[Tokens]
    namespace: str

    @property
    def num_tokens(self) -> int:
        return sum(int(tokens.size) for tokens in self.texts)

    async def vectors(self) -> list[Vector]:
        return await self.host.embeddings.embed(self.texts, self.namespace)

    async def unit_vectors(self, dimensions: int | None) -> list[Vector]:
        """The vectors cut to so many dimensions, if that is asked for, and of length one."""
        width = (await self.host.embeddings.shape()).width
        if dimensions is not None and dimensions > width:
            raise bad_field("dimensions", f"is {dimensions}, and the vectors of {self.host.name} have {width}")
        return [_normalised(vector[:dimensions]) for vector in await self.vectors()]


def _normalised(vector: Vector, norm: int = _EUCLID) -> Vector:
    """The vector divided by its p-norm; with llama-server's 0 by its largest number, and with -1 as it is."""
    if norm < 0:
        return vector
    length = np.abs(vector).max() / _LARGEST if norm == 0 else np.linalg.norm(vector.astype(np.float64), norm)
    return vector if length == 0 else (vector / length).astype(np.float32)


def _lists(vectors: Sequence[Vector]) -> list[list[float]]:
    return [vector.tolist() for vector in vectors]


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
