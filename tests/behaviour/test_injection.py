"""What a client writes ends in its own error at most: not in headers, in another reply, or in a template's code."""

from typing import Any

import httpx
import pytest

from leftoff.cli.loading import logging_to_stderr

CRLF = "x\r\nSet-Cookie: evil=1\r\n\r\n<script>"


def ask(http: httpx.Client, **fields: Any) -> httpx.Response:  # noqa: ANN401
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2} | fields
    return http.post("/v1/chat/completions", json=body)


def test_no_header_of_a_reply_repeats_what_was_sent(http: httpx.Client) -> None:
    replies = [
        ask(http, model=CRLF),
        ask(http, messages=[{"role": CRLF, "content": CRLF}]),
        ask(http, stop=CRLF, user=CRLF, tool_choice=CRLF),
        ask(http, stream=True, model=CRLF),
        http.get("/x%0d%0aSet-Cookie:%20evil=1"),
        http.get("/health", headers={"x-cache-salt": "evil", "x-request-id": "evil"}),
    ]
    for reply in replies:
        assert "set-cookie" not in reply.headers
        assert not any("evil" in value for value in reply.headers.values())
        assert not reply.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "options",
    [
        {"range": 1, "namespace": "x", "raise_exception": [], "strftime_now": {}, "dict": None},
        {"self": 1, "loop": 2, "caller": 3, "varargs": 4, "context": 5, "environment": 6, "blocks": 7},
        {"__class__": 1, "": 2, "a b": 3, "tick!": 4, "\x00": 5, "l_0_messages": 6},
        {"bos_token": {"a": []}, "eos_token": [[]], "documents": 1e308, "enable_thinking": "{{ 7 * 7 }}"},
        {"deep": [[[[[[[[[[]]]]]]]]]], "long": "x" * 100_000, "number": 10**4000},
    ],
)
def test_options_of_a_template_change_this_reply_alone(http: httpx.Client, options: dict[str, Any]) -> None:
    assert ask(http, chat_template_kwargs=options).status_code in (200, 400)
    assert ask(http).status_code == 200


@pytest.mark.parametrize(
    "content", ["{{ 7 * 7 }}", "{% raw %}", "{% endfor %}{{ messages }}", "{{ ''.__class__ }}", "\x00\x1b[2J", "\ufeff"]
)
def test_a_message_is_text_and_never_a_template(http: httpx.Client, content: str) -> None:
    reply = http.post("/apply-template", json={"messages": [{"role": "user", "content": content}]})
    assert content in reply.json()["prompt"]


def test_a_request_writes_one_line_into_the_log(http: httpx.Client, capfd: pytest.CaptureFixture[str]) -> None:
    """The line may quote what has changed in a prompt: as plain text."""
    with logging_to_stderr("info"):
        for number in range(3):
            system = {"role": "system", "content": f"\x1b[2J12:00:0{number}\r\nforged\n" + "You are careful. " * 60}
            assert ask(http, messages=[system, {"role": "user", "content": "Hello"}]).status_code == 200
    logged = capfd.readouterr().err
    assert "generated" in logged
    assert "\x1b" not in logged
    assert not any(line.startswith("forged") for line in logged.splitlines())
