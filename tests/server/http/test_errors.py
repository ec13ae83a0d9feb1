"""What a server without a feature answers to clients that ask for it: what is lacking, in words."""

import gzip

import httpx
import pytest


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/pull", "models are not managed here"),
        ("/infill", "write the tokens that the model has for it into the prompt of /completion"),
        ("/v1/responses/compact", "compaction is not supported"),
    ],
)
def test_a_feature_that_is_lacking_is_named(http: httpx.Client, path: str, words: str) -> None:
    reply = http.post(path, json={"model": "tiny", "input": "the river"})
    assert reply.status_code == 404
    error = reply.json()["error"]
    assert words in (error if isinstance(error, str) else error["message"])


def test_any_other_path_is_not_there(http: httpx.Client) -> None:
    assert "there is no POST /v1/lamps" in http.post("/v1/lamps", json={}).json()["error"]["message"]


def test_another_method_is_told_apart_from_another_path(http: httpx.Client) -> None:
    refused = http.post("/v1/models", json={})
    assert refused.status_code == 405
    assert refused.headers["allow"]
    assert refused.json()["error"]["code"] == "method_not_allowed"


def test_a_body_that_is_compressed_is_named_as_that(http: httpx.Client) -> None:
    refused = http.post("/v1/completions", content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})
    assert refused.status_code == 415
    assert refused.json()["error"]["message"] == "the body is encoded as 'gzip': send it as it is"


@pytest.mark.parametrize(("field", "value"), [("functions", [{"name": "light"}]), ("function_call", "auto")])
def test_deprecated_functions_are_refused_and_not_ignored(http: httpx.Client, field: str, value: object) -> None:
    body = {"messages": [{"role": "user", "content": "the river"}], field: value}
    error = http.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"] == field
    assert "is deprecated, and not supported: use tool" in error["message"]


def test_claude_code_finds_the_server(http: httpx.Client) -> None:
    assert http.head("/api/hello").status_code == 200
