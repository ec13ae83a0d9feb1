"""How well texts answer a query, for clients of Jina, Cohere, llama-server and text-embeddings-inference."""

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff.server.dialect import Dialect
from leftoff.server.embeddings import types as wire
from leftoff.server.embeddings.texts import TextReader, text_of, texts_of
from leftoff.server.http.endpoint import Endpoint, while_connected
from leftoff.server.http.errors import bad_field, missing_field
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
from leftoff.server.tenant import namespace_of


class Rerank(Dialect):
    """Scores by a reranking model."""

    def endpoints(self) -> list[Endpoint]:
        rerank = Endpoint("POST", "/v1/rerank", "How well texts answer a query", self.rerank, wire.RerankRequest)
        return [rerank, *map(rerank.at, ("/rerank", "/v2/rerank", "/v1/reranking", "/reranking"))]

    @while_connected
    async def rerank(self, request: Request, body: wire.RerankRequest) -> Response:
        """The best first."""
        place, given = ("texts", body.texts) if body.texts is not None else ("documents", body.documents)
        if given is None:
            raise missing_field(place)
        if not given:
            raise bad_field(place, "give at least one text: the list is empty")
        texts = texts_of(given, place)
        host = await self._hosts.embedding(body.model, ranks=True)
        shape = await host.embeddings.shape()
        if not shape.ranks:
            raise bad_field("model", f"{host.name} gives vectors, not scores. Serve a reranking model")
        query = text_of(body.query, "query")
        reader, most = TextReader.of(host.model, shape, cuts=body.truncate), body.max_tokens_per_doc
        pairs = await aside(
            host, lambda: [reader.pair(query, text, f"{place}[{i}]", most) for i, text in enumerate(texts)], request
        )
        vectors = await host.embeddings.embed(pairs, namespace_of(request, body.cache_salt))
        scores = [float(vector[0]) for vector in vectors]
        order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
        if body.texts is not None:
            return json_response([_scored(index, scores[index], texts, body) for index in order])
        num_tokens = sum(int(tokens.size) for tokens in pairs)
        return json_response(
            {
                "object": "list",
                "model": host.name,
                "results": [_result(index, scores[index], texts, body) for index in order],
                "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
            }
        )


def _result(index: int, score: float, texts: list[str], body: wire.RerankRequest) -> dict[str, Any]:
    document = {"document": {"text": texts[index]}} if body.return_documents else {}
    return {"index": index, "relevance_score": score} | document


def _scored(index: int, score: float, texts: list[str], body: wire.RerankRequest) -> dict[str, Any]:
    """A score as text-embeddings-inference shows it: between 0 and 1, unless the raw number is asked for."""
    text = {"text": texts[index]} if body.return_text else {}
    return {"index": index, "score": score if body.raw_scores else _between_0_and_1(score)} | text


def _between_0_and_1(score: float) -> float:
    """The logistic function, which by `exp` would overflow for scores far below 0."""
    return (1 + math.tanh(score / 2)) / 2
