"""Vectors of texts, as the clients of OpenAI, Ollama and llama-server ask for them."""

import base64
from typing import Any

import httpx
import numpy as np
import ollama
import openai
import pytest

from leftoff.engine.embedder import Vectors
from leftoff.host.host import ModelHost

TEXTS = ["where does the road end", "a lamp in his window"]


def raw(host: ModelHost, *texts: str) -> Vectors:
    """Computed alone, each."""
    tokens = [host.model.vocabulary.tokenize(text, add_special=True) for text in texts]
    return np.concatenate(host.call(lambda: [host.engine.embedder().embed([each]) for each in tokens]).result())


def unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def test_openais_client_gets_vectors(client: openai.OpenAI, host: ModelHost) -> None:
    """It asks for base64, and shows numbers."""
    reply = client.embeddings.create(model="tiny", input=TEXTS)
    assert np.allclose([each.embedding for each in reply.data], unit(raw(host, *TEXTS)), atol=1e-5)
    assert [each.index for each in reply.data] == [0, 1]
    num_tokens = sum(host.model.vocabulary.tokenize(text, add_special=True).size for text in TEXTS)
    assert reply.usage.prompt_tokens == num_tokens
    few = client.embeddings.create(model="tiny", input=TEXTS[0], dimensions=8).data[0].embedding
    assert np.allclose(few, unit(raw(host, TEXTS[0])[:, :8])[0], atol=1e-5)


def test_ollamas_client_gets_vectors(url: str, host: ModelHost) -> None:
    with ollama.Client(host=url) as client:
        assert np.allclose(client.embed("tiny", TEXTS).embeddings, unit(raw(host, *TEXTS)), atol=1e-5)
        assert np.allclose(client.embeddings("tiny", TEXTS[0]).embedding, raw(host, TEXTS[0])[0], atol=1e-5)


def test_a_norm_that_is_no_number_for_the_machine_is_refused(http: httpx.Client) -> None:
    refused = http.post("/embedding", content=b'{"content": "hi", "embd_normalize": 1%s}' % (b"0" * 400))
    assert refused.status_code == 400
    assert "embd_normalize" in refused.json()["error"]["message"]


@pytest.mark.parametrize("norm", [-1, 0, 1, 2])
def test_llama_server_divides_by_any_norm(http: httpx.Client, host: ModelHost, norm: int) -> None:
    (reply,) = http.post("/embedding", json={"content": TEXTS[0], "embd_normalize": norm}).json()
    vector = raw(host, TEXTS[0])[0]
    length = {-1: 1, 0: np.abs(vector).max() / 32760}.get(norm) or np.linalg.norm(vector, norm)
    assert np.allclose(reply["embedding"][0], vector / length, rtol=1e-4)
    assert http.post("/embeddings", json={"input": [TEXTS[0]]}).json()[0]["index"] == 0


def test_base64_has_the_bits_of_the_numbers(http: httpx.Client) -> None:
    replies = [
        http.post("/v1/embeddings", json={"input": TEXTS[0], "encoding_format": how}).json()["data"][0]["embedding"]
        for how in ("float", "base64", None)
    ]
    assert np.array_equal(np.array(replies[0], np.float32), np.frombuffer(base64.b64decode(replies[1]), "<f4"))
    assert replies[2] == replies[0], "null is what is left out"


def test_the_first_numbers_are_a_vector_of_length_one_in_both_forms(http: httpx.Client, host: ModelHost) -> None:
    def embed(**fields: Any) -> Any:  # noqa: ANN401
        return http.post("/v1/embeddings", json={"input": TEXTS[0], **fields}).json()["data"][0]["embedding"]

    width = raw(host, TEXTS[0]).shape[1]
    assert embed(dimensions=width) == embed(dimensions=None) == embed()
    for dimensions in (1, 7, width):
        numbers = np.array(embed(dimensions=dimensions), np.float32)
        bits = np.frombuffer(base64.b64decode(embed(dimensions=dimensions, encoding_format="base64")), "<f4")
        assert np.array_equal(bits, numbers)
        assert numbers.size == dimensions
        assert np.isclose(np.linalg.norm(numbers), 1)


def test_token_ids_are_texts_too(http: httpx.Client, host: ModelHost) -> None:
    ids = [host.model.vocabulary.tokenize(text, add_special=True).tolist() for text in TEXTS]
    by_text, by_ids, by_one = (
        http.post("/v1/embeddings", json={"input": value}).json()["data"] for value in (TEXTS, ids, ids[0])
    )
    assert by_ids == by_text
    assert by_one == by_text[:1]


LONG = "tell me the best story " * 1000


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"input": []}, "input: must be a text, a list of token ids, or a list of these that is not empty"),
        ({"input": ["a", ""]}, "input[1]: is empty: there is nothing to embed"),
        ({"input": ["a", None]}, "input[1]: must be a text or a list of token ids"),
        ({"input": [1, "a"]}, "input[1]: must be a token id, not a text"),
        ({"input": [1, 1 << 30]}, "input[1]: token 1073741824 is not in the vocabulary"),
        ({"input": "a", "dimensions": 65}, "dimensions: is 65, and the vectors of tiny have 64"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": ""}, "input: is empty: there is nothing to embed"),
        ({"input": ["a"] * 2049}, "input: has 2049 texts: at most 2048 are taken at once"),
        ({"input": ["a", LONG]}, "tokens, and the model takes 2048 at most: send less, or truncate: true"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens: is 0, which leaves no text"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, fields: dict[str, Any], problem: str) -> None:
    reply = http.post("/v1/embeddings", json=fields)
    assert reply.status_code == 400
    assert problem in reply.json()["error"]["message"]


@pytest.mark.parametrize("field", ["content", "input"])
def test_llama_servers_clients_are_told_of_the_field_that_they_sent(http: httpx.Client, field: str) -> None:
    error = http.post("/embedding", json={field: ["a", ""]}).json()["error"]
    assert error["message"] == f"{field}[1]: is empty: there is nothing to embed"
    assert http.post("/embedding", json={}).json()["error"]["param"] == "content"


def test_what_is_too_long_is_cut_where_that_is_asked_for(http: httpx.Client, host: ModelHost) -> None:
    tokens = host.model.vocabulary.tokenize(LONG, add_special=True)
    cut = http.post("/v1/embeddings", json={"input": tokens[:2048].tolist()}).json()["data"][0]["embedding"]
    for path, fields in (
        ("/v1/embeddings", {"truncate": True}),
        ("/v1/embeddings", {"truncate_prompt_tokens": -1}),
        ("/api/embed", {}),
    ):
        reply = http.post(path, json={"input": LONG} | fields).json()
        assert (reply["embeddings"][0] if "embeddings" in reply else reply["data"][0]["embedding"]) == cut
    assert http.post("/api/embed", json={"input": LONG, "truncate": False}).status_code == 400
    raw = {"content": tokens[:2048].tolist()}, {"content": LONG, "truncate": True}
    assert http.post("/embedding", json=raw[0]).json() == http.post("/embedding", json=raw[1]).json()
    few = http.post("/v1/embeddings", json={"input": LONG, "truncate_prompt_tokens": 5}).json()
    assert few["usage"]["prompt_tokens"] == 5


def test_a_chat_model_ranks_nothing(http: httpx.Client) -> None:
    reply = http.post("/v1/rerank", json={"query": "a", "documents": ["b"]})
    assert reply.status_code == 400
    assert "tiny gives vectors, not scores" in reply.json()["error"]["message"]


def test_a_text_that_is_far_too_long_is_refused_by_an_estimate(http: httpx.Client) -> None:
    """Neither it nor what is cut of it is tokenised whole: of control tokens that takes the square of their number."""
    text = "<|im_end|>a" * 200_000
    refused = http.post("/v1/embeddings", json={"model": "tiny", "input": ["a short one", text]})
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "input[1]: has about" in refused.json()["error"]["message"]
    cut = http.post("/api/embed", json={"input": "word " * 400_000})
    assert cut.json()["model"] == "tiny"
    assert len(cut.json()["embeddings"]) == 1
