"""`leftoff serve`: what it shows, that it answers, how it stops, and what it says when it cannot start."""

import json
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leftoff.cli.main import main
from tests.chat.vocabularies import no_vocabulary
from tests.cli.here import Here, served
from tests.cli.running import SMALL, Server, serving
from tests.factory import model_path
from tests.patience import PATIENCE_S, until

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A process, whose whole screen and log are looked at."""
    with serving("--jinja", "--temp", "0.7", "--flash-attn", "--alias", "tiny") as running:
        yield running


def test_it_says_where_it_listens_and_answers_there(server: Server) -> None:
    assert server.url, server.log
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_the_screen_tells_model_memory_budgets_rules_and_access(server: Server) -> None:
    screen = " ".join(" ".join(server.screen).split())
    for fact in (
        "model tiny,",
        "architecture qwen35",
        "memory hybrid. Its attention can be cut back, its recurrent state cannot",
        "context 1,024 tokens, shared by 2 slots",
        "fit 1,024 tokens of context: ",
        "cache up to 64 MiB of RAM for about ",
        " conversations of 1,024 tokens",
        "drop-header Claude Code's billing line",
        "move the date, git status and file list of coding agents",
        "API key off: whoever is on this machine may use it",
    ):
        assert fact in screen


def test_the_screen_names_what_is_ignored_and_why(server: Server) -> None:
    assert "ignored: --jinja: always so here" in server.screen


def test_how_tokens_are_chosen_is_taken_from_the_command_line(server: Server) -> None:
    params = httpx.get(f"{server.url}/props").json()["default_generation_settings"]["params"]
    assert params["temperature"] == pytest.approx(0.7)


def test_the_screen_tells_what_is_lost_without_flash_attention() -> None:
    with served("-fa", "off") as running:
        screen = " ".join(" ".join(running.screen).split())
    assert "memory opaque. It is saved and loaded only as a whole" in screen
    assert "That is the price of --flash-attn off, as is one request at a time." in screen


def test_a_context_beyond_all_memory_is_refused_with_the_flag(capsys: Capture) -> None:
    assert main(["serve", str(model_path("qwen35")), "--port", "0", "--ctx", "1000000000", "--threads", "1"]) == 1
    assert "RAM holds no context of 1,000,000,000 tokens: give a smaller --ctx" in capsys.readouterr().err


def test_a_cache_folder_that_cannot_be_used_is_said_on_the_screen(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with served("--disk", "64", "--cache-dir", str(file)) as running:
        screen = " ".join(" ".join(running.screen).split())
        assert "conversations of 1,024 tokens, nothing on disk (" in screen
        assert "is no folder: give another --cache-dir)" in screen
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_the_screen_has_no_colours_where_nobody_watches(server: Server) -> None:
    assert not {"\x1b", "\r"} & set("".join(server.screen))


def pasted(server: Server | Here, label: str) -> str:
    (line,) = (line for line in server.screen if line.startswith(f"  {label}"))
    return line.removeprefix(f"  {label}").strip()


def test_the_lines_to_paste_name_this_server(server: Server) -> None:
    assert f'OpenAI(base_url="{server.url}/v1", api_key="none")' in pasted(server, "openai SDK")
    assert f"OPENAI_API_BASE_URL={server.url}/v1 " in pasted(server, "Open WebUI")
    assert pasted(server, "terminal") == f"leftoff chat {server.url}"


def test_the_screen_has_lines_for_the_agents_that_can_work_in_the_window(server: Server) -> None:
    assert "a window of 1,024 tokens is too small for claude, codex, " in "\n".join(server.screen)
    assert not any(line.startswith(("  Claude Code", "  agents")) for line in server.screen)
    with served("--ctx", "65536") as large:
        assert f"ANTHROPIC_BASE_URL={large.url} " in pasted(large, "Claude Code")
        assert pasted(large, "agents").startswith(
            f"leftoff launch AGENT --url {large.url}, of claude, codex, opencode, pi"
        )
        assert "a window of 65,536 tokens is too small for qwen" in "\n".join(large.screen)


def test_the_line_for_curl_is_answered(server: Server) -> None:
    words = pasted(server, "curl").split(" ", 2)
    body = json.loads(pasted(server, "curl").rpartition(" -d ")[2].strip("'"))
    reply = httpx.post(words[1], json=body | {"max_tokens": 2}, timeout=PATIENCE_S)
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["role"] == "assistant"
    assert "first token after" in server.log, "one line per request"


# SIGTERM is what the first is turned into.
@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_it_cleanly(number: signal.Signals, code: int) -> None:
    with serving() as running:
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert running.stop(number) == code
        assert running.log == ""


def test_at_its_end_it_tells_what_was_spared_also_by_a_reply_that_was_cut() -> None:
    body = {"prompt": "where does the road end and who has built it", "temperature": 0}
    headers = [{"authorization": f"Bearer {key}"} for key in ("one", "two")]
    with serving("--api-key", "one", "--api-key", "two", "--log-format", "json") as running:
        url = f"{running.url}/v1/completions"
        for each in (*headers, headers[0]):
            httpx.post(url, json=body | {"max_tokens": 2}, headers=each, timeout=PATIENCE_S).raise_for_status()
        endless = body | {"stream": True, "ignore_eos": True, "max_tokens": -1}
        with httpx.stream("POST", url, json=endless, headers=headers[1], timeout=PATIENCE_S) as reply:
            next(reply.iter_lines())
            assert running.stop() == 0
        *requests, last = map(json.loads, running.log.splitlines())
    requests = [each["request"] for each in requests]
    assert [each["finish"] for each in requests] == ["length"] * 3 + ["cancelled"]
    assert last["message"].startswith(f"spared since the start: {last['spared']['reused']:,} tokens, ")
    assert last["message"].endswith(" tokens in 4 requests")
    for name in ("reused", "saved_ms"):
        assert last["spared"][name] == pytest.approx(sum(each[name] for each in requests), abs=0.01)
    assert last["spared"]["reused"] > 0
    assert last["spared"]["requests"] == 4


def test_a_key_is_not_shown_and_is_asked_for() -> None:
    with served("--api-key", "top-secret") as running:
        assert "top-secret" not in "\n".join(running.screen)
        assert "YOUR_KEY" in pasted(running, "curl")
        assert httpx.get(f"{running.url}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer top-secret"}
        assert httpx.get(f"{running.url}/v1/models", headers=headers).status_code == 200


def one_line(capsys: Capture) -> str:
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    assert output.out == ""
    return output.err


def test_a_port_in_use_is_said_in_one_line(capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(model_path("qwen35")), "--port", str(port), *SMALL]) == 1
    error = one_line(capsys)
    assert f"port {port}" in error
    assert "--port" in error


def test_an_address_that_no_router_reaches_is_refused(capsys: Capture) -> None:
    assert main(["serve", str(model_path("llama")), "--index", "redis://user:word@192.0.2.1:6379/0"]) == 1
    said = capsys.readouterr().err
    assert "--host 127.0.0.1" in said
    assert "--advertise URL" in said
    assert "word" not in said


def test_a_model_that_is_not_there(capsys: Capture, tmp_path: Path) -> None:
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0"]) == 1
    error = one_line(capsys)
    assert f"there is no model file at {tmp_path / 'none.gguf'}" in error
    assert "org/repo[:quant]" in error, "the way out"


def test_a_model_without_a_vocabulary(capsys: Capture, tmp_path: Path) -> None:
    path = no_vocabulary(tmp_path / "mute.gguf")
    assert main(["serve", str(path), "--port", "0", *SMALL]) == 1
    assert f"{path} has no vocabulary (tokenizer.ggml.model is 'no_vocab')" in one_line(capsys)


def test_what_the_process_does_afterwards_is_not_logged_to_its_stderr(capsys: Capture, tmp_path: Path) -> None:
    """Tests and programs go on after it, and may have closed that stderr by then."""
    loggers = [logging.getLogger("leftoff"), logging.getLogger("uvicorn.error")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0", "--log-level", "debug"]) == 1
    assert [(logger.level, logger.handlers) for logger in loggers] == before
    one_line(capsys)
    loggers[0].critical("said later")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [None, b"\xf0\x28\x8c\x28", b"{% if %}"], ids=["missing", "binary", "broken"])
def test_a_template_that_cannot_be_used(capsys: Capture, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "chat.jinja"
    if content is not None:
        file.write_bytes(content)
    assert main(["serve", str(model_path("qwen35")), "--port", "0", "--chat-template-file", str(file), *SMALL]) == 1
    assert f"--chat-template-file {file}: " in one_line(capsys)


def test_a_file_to_prewarm_with_a_message_of_nobody(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text('{"messages": [{"content": "Be brief."}]}')
    assert main(["serve", str(model_path("qwen35")), "--port", "0", "--prewarm", str(file), *SMALL]) == 1
    assert f"leftoff: --prewarm {file}: a message has no role" in capsys.readouterr().err


def test_a_file_to_prewarm_that_does_not_fit(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("the old man and the road " * 1000)
    assert main(["serve", str(model_path("qwen35")), "--port", "0", "--prewarm", str(file), *SMALL]) == 1
    error = capsys.readouterr().err
    assert f"leftoff: --prewarm {file}: the prompt has " in error
    assert "Traceback" not in error


def test_without_a_model_the_one_that_comes_with_leftoff_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEFTOFF_MODEL", raising=False)
    with served(model="") as running:
        assert "model leftoff-tiny" in " ".join(" ".join(running.screen).split())


def test_a_bad_value_in_the_environment(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFTOFF_RAM", "lots")
    assert main(["serve", "model.gguf"]) == 1
    assert "LEFTOFF_RAM: 'lots' is not a whole number, or 'auto'" in one_line(capsys)


def test_open_shows_the_page_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with serving("--open") as running:
        assert until(opened.exists)
        assert opened.read_text().strip() == running.url
