"""Drafts as clients see them: the same reply, its timings, the report, the metrics; and how they are turned off."""

import json
from collections.abc import Iterator

import httpx
import pytest

from leftoff.engine.measure import HeadTimes
from leftoff.host import drafts
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.factory import MTP
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

TEXT = " ".join(f"step {number} of the way is a lamp" for number in range(12))
QUOTE = {"prompt": f"Repeat: {TEXT}. Again: ", "grammar": f'root ::= "{TEXT}"', "n_predict": 200, "temperature": 0}


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    """As on a machine where a batch of many tokens takes as long as one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "measure_batches", lambda _: {1: 1.0, 64: 1.0})
        with open_host(settings(draft="auto")) as host:
            yield host


def test_a_quote_is_drafted_and_told(http: httpx.Client, host: ModelHost) -> None:
    reply = http.post("/completion", json=QUOTE).json()
    assert reply["content"] == TEXT
    timings = reply["timings"]
    assert timings["predicted_n"] == reply["tokens_predicted"]
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
    (report,) = http.get("/cache/requests?n=1").json()["requests"]
    assert (report["drafted"], report["accepted"]) == (timings["draft_n"], timings["draft_n_accepted"])
    assert sum(report["drafted_from"].values()) == report["accepted"]
    assert report["drafted_from"]["conversation"] > 0
    assert f"{report['accepted']} of {report['drafted']} drafted right" in host.log.records[0].ending
    metrics = http.get("/metrics").text
    assert 'leftoff_accepted_tokens_total{source="conversation"}' in metrics
    assert http.get("/props").json()["default_generation_settings"]["speculative"] is True
    assert http.get("/slots").json()[0]["speculative"] is True


def test_logprobs_and_streams_are_of_accepted_tokens(http: httpx.Client) -> None:
    whole = http.post("/completion", json=QUOTE | {"n_probs": 1}).json()
    assert len(whole["completion_probabilities"]) == whole["tokens_predicted"]
    assert "".join(each["token"] for each in whole["completion_probabilities"]) == TEXT
    with http.stream("POST", "/completion", json=QUOTE | {"stream": True}) as stream:
        events = [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line]
    assert "".join(event["content"] for event in events) == TEXT


def test_a_stop_string_within_a_draft(http: httpx.Client) -> None:
    prompt = f"{TEXT}. Again: {TEXT}. Again:"
    whole = http.post("/completion", json={"prompt": prompt, "n_predict": 60, "temperature": 0}).json()
    stop = whole["content"][len(whole["content"]) // 2 :][:6]
    cut = http.post("/completion", json={"prompt": prompt, "n_predict": 60, "temperature": 0, "stop": [stop]}).json()
    assert cut["content"] == whole["content"].partition(stop)[0]


def test_what_is_cleared_is_not_drafted_from(http: httpx.Client, host: ModelHost) -> None:
    http.post("/completion", json=QUOTE)
    assert host.scheduler.drafter is not None
    assert host.scheduler.drafter.nbytes > 0
    assert http.delete("/cache").status_code == 200
    assert host.scheduler.drafter.nbytes == 0


@pytest.mark.parametrize(("draft", "deterministic"), [("off", False), ("tree", True)])
def test_without(draft: str, deterministic: bool) -> None:
    with open_host(settings(draft=draft, deterministic=deterministic)) as host:
        assert host.scheduler.drafter is None


def test_auto_does_without_where_no_draft_can_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "measure_batches", lambda _: {1: 0.01, 4: 0.04, 8: 0.08})
    with open_host(settings(draft="auto")) as host:
        assert host.scheduler.drafter is None
    with open_host(settings(draft="tree")) as host:
        assert host.scheduler.drafter is not None


class TestNextTokenLayer:
    """A model with a next-token (MTP) layer drafts with it where the cache knows nothing."""

    @pytest.mark.parametrize("draft", ["auto", "mtp"])
    def test_it_drafts(self, draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(drafts, "measure_batches", lambda _: {1: 1.0, 64: 1.0})
        asked = {"prompt": "a lamp on the way", "n_predict": 60, "temperature": 0, "ignore_eos": True}
        with (
            open_host(settings(MTP, draft=draft)) as host,
            serving(host) as url,
            httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
        ):
            timings = http.post("/completion", json=asked).json()["timings"]
            assert timings["draft_n"] > 0
            (report,) = http.get("/cache/requests?n=1").json()["requests"]
            assert "mtp" in report["drafted_from"]

    @pytest.mark.parametrize("changes", [{"draft": "tree"}, {"draft": "off"}, {"draft": "auto", "deterministic": True}])
    def test_it_is_not_loaded_where_it_does_not_draft(self, changes: dict[str, object]) -> None:
        with open_host(settings(MTP, **changes)) as host:
            assert not host.model.settings.mtp
            assert host.engine.head is None

    def test_its_context_is_freed_where_it_cannot_pay(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "leftoff.drafts")
        monkeypatch.setattr(drafts, "measure_batches", lambda _: {1: 1.0, 64: 1.0})
        monkeypatch.setattr(drafts, "measure_head", lambda _: HeadTimes(900.0, 0.0))
        with open_host(settings(MTP, draft="auto")) as host:
            assert host.scheduler.drafter is not None
            assert host.engine.head is None
        assert "no drafts of hidden states: a token is guessed in 900.00 ms, and takes 1000.00" in caplog.text

    def test_a_model_without_one_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        with open_host(settings(draft="mtp")) as host:
            assert host.scheduler.drafter is None
        assert "--draft mtp: nothing is drafted: there is no MTP layer in the model file" in caplog.text
