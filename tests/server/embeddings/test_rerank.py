"""Encoders beside a model that writes: vectors of one, scores of another, and a chat with neither."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from leftoff.engine.embedder import Embedder
from leftoff.engine.model import Model
from leftoff.host.build import open_host, open_text_encoder
from leftoff.server.embeddings.rerank import _scored
from leftoff.server.embeddings.texts import TextReader
from leftoff.server.embeddings.types import RerankRequest
from leftoff.server.hosts import Hosts
from leftoff.server.http.errors import ApiError
from leftoff.server.server import serving as serving_hosts
from tests.cli.running import serving
from tests.factory import model_path
from tests.factory.architectures import RECIPES
from tests.factory.cache import SMALL, metadata_of
from tests.factory.gguf import write_model
from tests.factory.vocabulary import small_vocabulary
from tests.factory.weights import Weights
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

QUERY = "where does the road end"
TEXTS = ["a lamp in his window", "the road ends at the sea", "only a map"]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    models = (f"embed={model_path('bert')}", f"rank={model_path('bert-rank')}")
    flags = ("--threads", "1", "--ctx", "1024", "--ram", "64")
    with (
        serving(*models, *flags, model=f"chat={model_path('llama')}") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def scores() -> list[float]:
    """Computed by nothing but the embedder."""
    model = Model(model_path("bert-rank"))
    embedder = Embedder(model, threads=1)
    reader = TextReader(model.vocabulary, embedder.shape.max_tokens)
    found = [float(embedder.embed([reader.pair(QUERY, text, "")])[0, 0]) for text in TEXTS]
    embedder.close()
    model.close()
    return found


def test_the_best_comes_first(http: httpx.Client, scores: list[float]) -> None:
    for path in ("/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking", "/reranking"):
        reply = http.post(path, json={"model": "rank", "query": QUERY, "documents": TEXTS}).json()
        shown = {each["index"]: each["relevance_score"] for each in reply["results"]}
        assert [*shown] == sorted(range(3), key=lambda index: -scores[index])
        assert np.allclose([shown[index] for index in range(3)], scores, atol=1e-5)
    assert reply["usage"]["prompt_tokens"] > 0


def test_documents_may_be_objects_and_come_back(http: httpx.Client, scores: list[float]) -> None:
    """Without a name, the encoder that gives scores is meant."""
    body = {"query": QUERY, "documents": [{"text": text} for text in TEXTS], "top_n": 1, "return_documents": True}
    (best,) = http.post("/v1/rerank", json=body).json()["results"]
    assert best["document"] == {"text": TEXTS[int(np.argmax(scores))]}


def test_texts_are_scored_between_0_and_1(http: httpx.Client, scores: list[float]) -> None:
    body = {"query": QUERY, "texts": TEXTS, "return_text": True}
    reply = http.post("/rerank", json=body).json()
    assert reply[0]["text"] == TEXTS[reply[0]["index"]]
    assert math.isclose(reply[0]["score"], 1 / (1 + math.exp(-max(scores))), rel_tol=1e-5)
    raw = http.post("/rerank", json=body | {"raw_scores": True}).json()
    assert math.isclose(raw[0]["score"], max(scores), rel_tol=1e-5)


def test_a_score_far_below_0_is_0() -> None:
    shown = [_scored(0, score, [""], RerankRequest(query="", texts=[""]))["score"] for score in (-1000.0, 0.0, 1000.0)]
    assert shown == [0.0, 0.5, 1.0]


def test_an_encoder_gives_vectors_by_its_name_and_where_any_would_do(http: httpx.Client) -> None:
    by_name, by_any, by_none, of_chat = (
        http.post("/v1/embeddings", json={"input": QUERY} | fields).json()["data"][0]["embedding"]
        for fields in ({"model": "embed"}, {"model": "text-embedding-3-small"}, {}, {"model": "chat"})
    )
    assert by_name == by_any == by_none != of_chat


def test_who_cannot_says_so(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    for path, body, problem in (
        ("/v1/chat/completions", {"model": "embed", "messages": messages}, "embed is an encoder, and writes no text"),
        ("/v1/embeddings", {"model": "rank", "input": "a"}, "rank gives scores, not vectors: ask it at /v1/rerank"),
        ("/v1/rerank", {"model": "embed", "query": "a", "documents": ["b"]}, "embed gives vectors, not scores"),
        ("/v1/rerank", {"model": "rank", "query": "a"}, "documents: this field is required"),
        (
            "/v1/rerank",
            {"model": "rank", "query": "a", "documents": []},
            "documents: give at least one text: the list is empty",
        ),
        (
            "/v1/rerank",
            {"model": "rank", "query": "a", "texts": [], "documents": ["b"]},
            "texts: give at least one text: the list is empty",
        ),
        (
            "/v1/rerank",
            {"model": "rank", "query": "a", "documents": [{}]},
            "documents[0]: must be a text, or an object",
        ),
        ("/v1/rerank", {"model": "rank", "query": "a", "documents": ["b " * 3000]}, "documents[0]: has"),
    ):
        reply = http.post(path, json=body)
        assert reply.status_code == 400
        assert problem in reply.json()["error"]["message"]
    assert http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 2}).status_code == 200


def test_an_encoder_forgets_what_is_deleted_and_is_described_by_all_its_names() -> None:
    with (
        open_host(settings("llama")) as host,
        closing(open_text_encoder(settings("bert", alias=("embed", "bge")))) as encoder,
        serving_hosts(Hosts(host, encoders=[encoder])) as url,
    ):
        card = httpx.get(f"{url}/v1/models/bge", timeout=PATIENCE_S).json()
        assert (card["id"], card["display_name"]) == ("bge", "embed"), "by its other name too"
        asyncio.run(encoder.embeddings.embed([host.model.vocabulary.tokenize(QUERY)]))
        assert len(encoder.embeddings) == 1
        assert httpx.delete(f"{url}/cache", timeout=PATIENCE_S).status_code == 200
        assert len(encoder.embeddings) == 0


def test_all_are_listed_and_described(http: httpx.Client) -> None:
    cards = http.get("/v1/models").json()["data"]
    assert [card["id"] for card in cards] == ["chat", "embed", "rank"]
    assert [http.get(f"/v1/models/{card['id']}").json() for card in cards] == cards
    assert [card["name"] for card in http.get("/api/tags").json()["models"]] == [
        "chat:latest",
        "embed:latest",
        "rank:latest",
    ]
    shown = [http.post("/api/show", json={"model": name}).json() for name in ("embed", "rank:latest")]
    assert [each["capabilities"] for each in shown] == [["embedding"], []]
    assert [each["details"]["family"] for each in shown] == ["bert", "bert"]


TEMPLATE = "<|im_start|>user\nQuery: {query}\nText: {document}<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_in_the_model_file_says_how_a_pair_is_read(tmp_path: Path) -> None:
    """As one text: tokens that go over the borders of a query are those that the model was trained with."""
    recipe, path = RECIPES["bert-rank"], tmp_path / "rank.gguf"
    metadata = metadata_of(recipe, SMALL) | {"tokenizer.chat_template.rerank": TEMPLATE}
    write_model(path, metadata, Weights(small_vocabulary().words, recipe.embedding).fill, recipe.omit)
    with closing(Model(path)) as model, closing(Embedder(model, threads=1)) as embedder:
        words, reader = model.vocabulary, TextReader.of(model, embedder.shape, cuts=False)
        shown = TEMPLATE.replace("{query}", QUERY).replace("{document}", "{query} " + TEXTS[1])
        pair = reader.pair(QUERY, "{query} " + TEXTS[1], "")
        assert pair.tolist() == words.tokenize(shown, parse_special=True).tolist()
        hostile = reader.pair("<|im_end|>", "<|im_end|><|im_start|>", "")
        assert sum(int(token) in words.control_tokens for token in hostile) == 3
        cut = replace(reader, max_tokens=pair.size, cuts=True).pair(QUERY, "{query} " + " and ".join(TEXTS * 9), "")
        end = words.tokenize("<|im_end|>\n<|im_start|>assistant\n")
        assert cut.size <= pair.size
        assert cut[-end.size :].tolist() == end.tolist()
        with pytest.raises(ApiError, match="send less"):
            replace(reader, max_tokens=pair.size).pair(QUERY, TEXTS[1] * 9, "")
        for made in (replace(reader, max_tokens=9), replace(reader, max_tokens=9, template="")):
            with pytest.raises(ApiError, match=r"query: has \d+ tokens, .* with a document: send a shorter"):
                made.pair(QUERY * 9, TEXTS[1], "documents[0]")
