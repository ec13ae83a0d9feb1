"""The log as JSON: a line is an object, and a request's has its numbers and none of its words."""

import json
import logging
import sys

import httpx
import pytest

from leftoff.cli.loading import logging_to_stderr, traced
from leftoff.setting import SettingError
from tests.cli.here import served
from tests.patience import PATIENCE_S


def test_every_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("leftoff.tests")
    with logging_to_stderr("info", "json"):
        logger.info("two\nlines and a \x1b[31mcolour")
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["message"], first["level"]) == ("two\nlines and a \x1b[31mcolour", "info")
    assert first["logger"] == "leftoff.tests"
    assert first["time"].endswith("+00:00")
    assert second["exception"].endswith("ValueError: no")


def test_a_request_has_its_numbers_and_none_of_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    body = {"messages": [{"role": "user", "content": "where does the road end"}], "max_tokens": 2}
    with logging_to_stderr("info", "json"), served() as server:
        httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_S).raise_for_status()
        httpx.post(f"{server.url}/v1/chat/completions", json={}, timeout=PATIENCE_S)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "road" not in json.dumps(lines)
    (request,) = [line["request"] for line in lines if "request" in line]
    assert request["client"] == "python-httpx"
    assert request["prompt_tokens"] == request["computed"] == sum(request["reasons"].values())
    assert any("refused with 4" in line["message"] for line in lines)


def test_without_a_collector_nothing_watches() -> None:
    with traced("") as watchers:
        assert watchers == []


def test_what_is_missing_for_traces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "leftoff.host.traces", None)
    with pytest.raises(SettingError, match=r"pip install 'leftoff\[otel\]'"), traced("http://127.0.0.1:4318"):
        pass
