"""Mutated bodies of real clients are answered or refused, never with a 5xx.

`python -m tests.behaviour.mutated 10000` is the long version.
"""

import json
from collections.abc import Iterator

import pytest

from tests.behaviour.bodies import ROUTES, Body
from tests.behaviour.mutated import has_end, has_levelled, problem_with, send, send_all, server_of_ours
from tests.behaviour.mutated_pictures import with_picture
from tests.behaviour.mutations import Mutated
from tests.cli.running import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_of_ours(model=None) as server:
        yield server


@pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])
def test_the_bodies_themselves_are_accepted(server: Server, path: str, body: Body) -> None:
    request = Mutated(path, (("Content-Type", "application/json"),), json.dumps(body).encode())
    wanted = 404 if "conv_1" in path else 200  # of a conversation that is not there
    assert send(server.url, request) == (wanted, None)


def test_a_hundred_requests(server: Server) -> None:
    tally = send_all(server, seed=1, numbers=range(100))
    assert tally.problems == []
    assert tally.statuses[200] >= 20, "many are changed where it does not matter"
    assert tally.statuses[400] >= 20


def test_fifty_requests_with_pictures(server: Server) -> None:
    """To a model that sees none: `test_mutated_pictures.py` has one that does."""
    tally = send_all(server, seed=1, numbers=range(50), make=with_picture)
    assert tally.problems == []
    assert min(tally.statuses[200], tally.statuses[400]) >= 5


@pytest.mark.parametrize(
    ("status", "data", "problem"),
    [
        (200, b"{}", None),
        (400, b'{"error": {}}', None),
        (503, b'{"error": {"code": "queue_full"}}', None),
        (503, b'{"error": {"code": "stopping"}}', "status 503"),
        (500, b"{}", "status 500"),
        (200, b"oh", "status 200, and no JSON"),
    ],
)
def test_a_bad_answer_is_seen(status: int, data: bytes, problem: str | None) -> None:
    assert problem_with("/v1/messages", status, "application/json", data) == problem


def test_a_stream_without_its_end_is_seen() -> None:
    assert has_end("/v1/chat/completions", "data: {}\n\ndata: [DONE]\n\n")
    assert not has_end("/v1/chat/completions", "data: {}\n\n")
    assert has_end("/api/chat", '{"done": false}\n{"done": true}\n')
    assert not has_end("/api/chat", '{"done": false}\n')
    assert has_end("/v1/messages", 'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert not has_end("/v1/messages", 'event: ping\ndata: {"type":"ping"}\n\n')
    assert has_end("/completion", 'data: {"stop":true}\n\n:\n\n')


def test_memory_that_grows_is_told_from_memory_that_comes_and_goes() -> None:
    assert has_levelled([100, 200, 210, 205, 211, 204])
    assert has_levelled([100, 200])
    assert not has_levelled([100, 120, 140, 160, 180, 200])
