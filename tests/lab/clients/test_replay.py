"""What real clients sent, played against a server: a turn that goes on reads only what is new, a fresh one the rest.

lm_eval's requests are no turns of a chat: the log-probabilities of their prompts are what it needs.

The recordings are made by `python -m lab.clients.record`; `make clients` plays the clients themselves.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab.clients.play import too_much
from lab.clients.record import read
from lab.clients.replay import replay
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.hub.reference import default_model
from leftoff.server.server import serving

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json"))
LM_EVAL = Path(__file__).parent / "recordings" / "lm-eval.json"
SHARE = 0.6  # of a fresh first prompt: texts are shortened, so the git status and the question are a larger part of it
MAX_BYTES = 1 << 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = Settings(model=str(default_model()), ctx=16384, threads=1, slots=2, ram=256, disk=0, draft="off")
    with open_host(settings) as host, serving(host) as url:
        yield url


@pytest.mark.parametrize("path", [path for path in RECORDINGS if path != LM_EVAL], ids=lambda path: path.stem)
def test_a_client_reads_only_what_is_new(path: Path, url: str) -> None:
    assert httpx.delete(f"{url}/cache").status_code == httpx.codes.OK
    turns = [played for played in replay(read(path), url) if played.request.kind != "aside"]
    kinds = [turn.request.kind for turn in turns]
    assert kinds.count("begins") >= 2, "a fresh session too"
    assert kinds.count("goes on") + kinds.count("retells") >= 2
    assert [*too_much(kinds, [turn.asked for turn in turns], None, SHARE)] == []


def test_lm_eval_gets_a_chance_for_every_token_but_the_first(url: str) -> None:
    played = [*replay(read(LM_EVAL), url)]
    assert {one.request.kind for one in played} == {"alone"}
    for one in played:
        (prompt,), (choice,) = one.request.body["prompt"], json.loads(one.reply)["choices"]
        first, *others = choice["logprobs"]["token_logprobs"]
        assert first is None
        assert len(others) == one.asked.prompt_tokens == len(prompt), "and one for the token that was generated"
        assert all(chance < 0 for chance in others)


def test_the_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in RECORDINGS) < MAX_BYTES
