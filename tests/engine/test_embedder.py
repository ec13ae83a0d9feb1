"""Vectors of texts: those of the C API, whatever else is in the batch, and nobody else notices."""

import ctypes as C
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings, context_params
from leftoff.engine.embedder import Embedder, Pooling, Vectors
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.model import Model
from leftoff.types import Tokens
from tests.factory import ENCODERS, model_path

TEXTS = ("where does the road end", "a lamp in his window", "tell me the best story " * 12, "only a map")
KINDS = ("llama", "gemma3", "qwen35", "mamba2", "rwkv7", "deepseek2", *ENCODERS)


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    model = Model(model_path(request.param))
    yield model
    model.close()


def tokens_of(model: Model, *texts: str) -> list[Tokens]:
    return [model.vocabulary.tokenize(text, add_special=True) for text in texts]


def directly(model: Model, tokens: Tokens, pooling: Pooling, width: int) -> Vectors:
    """By nothing but the C API."""
    dll = model.library.dll
    params = next(context_params(model.library, ContextSettings(num_cells=2048, num_sequences=15, threads=1)))
    params.n_ubatch, params.embeddings, params.pooling_type, params.flash_attn_type = 2048, True, int(pooling), 0
    context = dll.llama_init_from_model(model.handle, params)
    assert dll.llama_decode(context, dll.llama_batch_get_one(tokens.ctypes.data, tokens.size)) == 0
    address = dll.llama_get_embeddings_seq(context, 0)
    vector = np.ctypeslib.as_array(C.cast(address, C.POINTER(C.c_float)), (width,)).copy()
    dll.llama_free(context)
    return vector


@pytest.mark.parametrize("model", KINDS, indirect=True)
def test_a_vector_is_that_of_the_c_api_alone_and_beside_others(model: Model) -> None:
    embedder = Embedder(model, threads=1)
    texts = tokens_of(model, *TEXTS)
    alone = np.concatenate([embedder.embed([tokens]) for tokens in texts])
    for tokens, vector in zip(texts, alone, strict=True):
        assert np.array_equal(vector, directly(model, tokens, embedder.pooling, embedder.shape.width))
    assert np.allclose(embedder.embed(texts), alone, rtol=1e-5, atol=1e-5)
    assert all(not np.allclose(one, other) for one, other in pairwise(alone))
    embedder.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_text_is_as_long_as_the_model_takes_and_no_longer(model: Model) -> None:
    embedder = Embedder(model, threads=1)
    assert embedder.shape.max_tokens == 2048
    for length in (0, embedder.shape.max_tokens + 1):
        with pytest.raises(InputError, match=f"has {length} tokens: must be between 1 and 2048"):
            embedder.embed([np.zeros(length, np.int32)])
    embedder.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_where_the_last_token_counts_a_text_is_read_in_parts(model: Model) -> None:
    """Two thousand tokens are computed at once where the mean is taken: the last row of all is that of parts."""
    embedder = Embedder(model, threads=1, pooling=Pooling.LAST)
    (tokens,) = tokens_of(model, "tell me the best story " * 300)
    assert 512 < tokens.size <= embedder.shape.max_tokens == 4096
    whole = directly(model, tokens[:2048], Pooling.LAST, embedder.shape.width)
    assert np.allclose(embedder.embed([tokens[:2048]])[0], whole, atol=1e-3)
    embedder.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_texts_are_computed_together_as_far_as_they_fit(model: Model) -> None:
    embedder = Embedder(model, threads=1)
    short, long = np.ones(100, np.int32), np.ones(2000, np.int32)
    assert embedder.num_together([short] * 40) == 15
    assert embedder.num_together([short, long]) == 1
    assert embedder.num_together([long, short]) == 1
    assert embedder.num_together([short[:48], long]) == 2
    embedder.close()


def test_a_reply_does_not_notice() -> None:
    with LlamaEngine.open(model_path("qwen35"), ContextSettings(num_cells=512, threads=1)) as engine:
        tokens, *texts = tokens_of(engine.model, *TEXTS)

        def reply() -> Vectors:
            engine.memory.clear()
            engine.decode([Work(0, tokens)])
            if embeds:
                engine.embedder().embed(texts)
            return engine.logits(engine.decode([Work(0, tokens[:1])])[0]).copy()

        embeds = False
        before = reply()
        embeds = True
        assert np.array_equal(before, reply())
