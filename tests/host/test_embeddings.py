"""A text is embedded once, for each tenant, and a model that sleeps wakes for it."""

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from leftoff.engine.embedder import Vectors
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.types import Tokens
from tests.server.fixtures import settings


@pytest.fixture
def host() -> Iterator[ModelHost]:
    with open_host(settings(sleep_idle_seconds=3600)) as host:
        yield host


def texts(host: ModelHost, *words: str) -> list[Tokens]:
    return [host.model.vocabulary.tokenize(each, add_special=True) for each in words]


def embedded(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that are computed from now on."""
    lengths: list[int] = []
    embedder = host.call(host.engine.embedder).result()
    embed = embedder.embed

    def counted(texts: Sequence[Tokens]) -> Vectors:
        lengths.extend(int(each.size) for each in texts)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed", counted)
    return lengths


def test_the_same_text_is_computed_once(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = embedded(host, monkeypatch)
    one, other = texts(host, "a lamp in his window", "only a map")
    first = asyncio.run(host.embeddings.embed([one, other, one]))
    assert computed == [one.size, other.size]
    assert np.array_equal(first[0], first[2])
    again = asyncio.run(host.embeddings.embed([other, one]))
    assert computed == [one.size, other.size]
    assert np.array_equal(again, [first[1], first[0]])


def test_tenants_do_not_share_and_what_is_deleted_is_gone(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = embedded(host, monkeypatch)
    (text,) = texts(host, "a lamp in his window")
    for tenant in ("one/", "other/", "one/"):
        asyncio.run(host.embeddings.embed([text], tenant))
    assert len(computed) == 2
    host.call(lambda: host.forget(lambda namespace: namespace == "one/")).result()
    for tenant in ("other/", "one/"):
        asyncio.run(host.embeddings.embed([text], tenant))
    assert len(computed) == 3


def test_a_vector_that_was_being_computed_is_not_remembered(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = embedded(host, monkeypatch)
    (text,) = texts(host, "a lamp in his window")

    async def embed() -> None:
        asking = asyncio.create_task(host.embeddings.embed([text], "one/"))
        while not lengths:
            await asyncio.sleep(0)
        host.call(lambda: host.forget(lambda namespace: namespace == "one/")).result()
        await asking

    asyncio.run(embed())
    assert len(host.embeddings) == 0


def test_a_model_that_sleeps_wakes(host: ModelHost) -> None:
    (text,) = texts(host, "a lamp in his window")
    before = asyncio.run(host.embeddings.embed([text]))
    host.rest().result()
    assert host.engine.is_asleep
    assert np.array_equal(asyncio.run(host.embeddings.embed([text])), before)
    assert host.engine.is_asleep, "it is remembered"
    asyncio.run(host.embeddings.embed([text[1:]]))
    assert not host.engine.is_asleep
