"""An agent that looks at a screenshot in every turn, in each dialect: no old one is decoded, encoded or read again."""

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab.speed.screenshots import DIALECTS, Observed, Turn
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S
from tests.pictures import noise
from tests.server.fixtures import settings

NUM_TURNS = 6
ALLOWED = 1.01  # times what no server could have avoided to read
WIDTH = 64  # of the model


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(mmproj=str(projector_path("qwen3vl_merger", WIDTH)), max_tokens=4)) as host:
        yield host


@pytest.fixture(scope="module")
def http(host: ModelHost) -> Iterator[httpx.Client]:
    with serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        yield client


def shot(number: int) -> str:
    return base64.b64encode(noise(number)).decode()


@pytest.mark.parametrize(("first", "dialect"), [*enumerate(DIALECTS)])
def test_old_pictures_cost_next_to_nothing(host: ModelHost, http: httpx.Client, first: int, dialect: str) -> None:
    turns: list[Turn] = []
    looked = [shot(number) for number in range(100 * first, 100 * first + NUM_TURNS)]
    for turn, report in Observed(host, http).play("tiny", DIALECTS[dialect], looked):
        assert (turn.decoded, turn.encoded) == (1, 1)
        assert [line.endswith("reused") for line in report["images"]] == [True] * len(turns) + [False]
        assert report["reasons"].keys() <= {"new"} or not turns
        turns.append(turn)
    assert sum(turn.computed for turn in turns) <= ALLOWED * sum(turn.unavoidable or 0 for turn in turns)


def test_a_raw_prompt_shows_pictures_and_clients_are_told_so(http: httpx.Client) -> None:
    prompt = {"prompt_string": "A <__media__> and <__media__>", "multimodal_data": [shot(901), shot(901)]}
    answer = http.post("/completion", json={"prompt": prompt, "n_predict": 2}).json()
    assert answer["tokens_evaluated"] > 2 * 9
    assert http.get("/props").json()["modalities"]["vision"] is True
    assert http.get("/v1/models").json()["data"][0]["meta"]["vision"] is True
    assert "vision" in http.post("/api/show", json={"model": "tiny"}).json()["capabilities"]


def test_a_salt_has_its_own_pictures_which_are_deleted_with_it(tmp_path: Path) -> None:
    projector = str(projector_path("qwen3vl_merger", WIDTH))
    asked = settings(mmproj=projector, disk=64, cache_dir=str(tmp_path), api_key=("key", "another"))
    with open_host(asked) as host, serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        http.headers["Authorization"] = "Bearer key"
        parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shot(902)}"}}]
        chat = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
        raw = {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [shot(902)]}, "n_predict": 2}
        for salt in ({"cache_salt": "one"}, {"cache_salt": "two"}, {}):
            for path, body in (("/v1/chat/completions", chat), ("/completion", raw)):
                assert http.post(path, json=body | salt).status_code == 200
        encoder = host.prompts.encoder
        assert encoder is not None
        assert encoder.num_encoded == 3, "salts share nothing"
        for query, num_left in (("?salt=one", 2), ("?salt=none", 2), ("", 0)):
            assert http.delete(f"/cache{query}").status_code == 200
            assert len([*tmp_path.rglob("*.picture")]) == num_left
