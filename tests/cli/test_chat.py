"""`leftoff chat` through a pipe: with a model in the process, and with a server at a URL."""

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from leftoff.cli.chat_history import ChatHistory
from leftoff.cli.main import main
from leftoff.cli.talk import as_url
from leftoff.units import printable
from tests.cli.here import Here, served
from tests.factory import model_path
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S
from tests.pictures import png

Chat = Callable[..., list[str]]
GREEDY = ("--temperature", "0", "--max-tokens", "6")
LOCAL = ("--ctx", "1024", "--threads", "1", "--ram", "64")
_COUNTS = re.compile(r"reused (\d+) · computed (\d+) · first token after [\d,]+ ms")


@pytest.fixture
def chat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chat:
    def run(whom: str, typed: str, *arguments: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        code = main(["chat", whom, *GREEDY, *arguments])
        output = capsys.readouterr()
        assert code == (1 if output.err else 0), "what failed is said on stderr, and the exit code says it too"
        return [*output.out.splitlines(), *output.err.splitlines()]

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[Here]:
    with served() as server:
        yield server


@pytest.fixture(params=["in process", "at a url"])
def whom(request: pytest.FixtureRequest) -> str:
    return str(model_path("qwen35")) if request.param == "in process" else request.getfixturevalue("server").url


def counts(lines: list[str]) -> list[tuple[int, int]]:
    return [(int(match[1]), int(match[2])) for match in map(_COUNTS.fullmatch, lines) if match]


def replies(lines: list[str]) -> list[str]:
    """The lines above those that count."""
    return [above for above, line in pairwise(lines) if _COUNTS.fullmatch(line)]


def test_a_model_of_the_file_is_asked_by_its_name(chat: Chat, tmp_path: Path) -> None:
    config = tmp_path / "some.toml"
    config.write_text(
        f'threads = 1\nram = 64\n[models.a]\nmodel = "nowhere.gguf"\n[models.b]\nmodel = "{model_path("llama")}"'
    )
    said = chat("b", "hi\n", "--ctx", "1024", "--config", str(config))
    assert any(line.startswith("b · ") for line in said), "perhaps after a hint at a faster engine"
    assert "there is no model file at nowhere.gguf" in chat("a", "hi\n", "--config", str(config))[-1]


def test_each_reply_is_followed_by_what_was_reused(chat: Chat, whom: str) -> None:
    lines = chat(whom, "good morning\nhow are you\n", *LOCAL)
    first, second = counts(lines)
    assert second[0] >= first[0] + first[1] - 8, "the second turn goes on where the first left off"
    assert second[1] < sum(second)
    assert all(reply.strip() for reply in replies(lines))


def test_retry_asks_the_same_again_and_reads_next_to_nothing(chat: Chat, whom: str) -> None:
    lines = chat(whom, "one more time\n/retry\n", *LOCAL)
    first, again = counts(lines)
    assert sum(first) == sum(again)
    assert again[1] <= 1
    assert replies(lines)[0] == replies(lines)[1]


def test_a_retry_that_fails_keeps_the_turn(chat: Chat, whom: str) -> None:
    too_long = f"/system {'word ' * 1200}"
    lines = chat(whom, f"one more time\n{too_long}\n/retry\n/system\n/retry\n", *LOCAL)
    assert "the reply that was there stays" in lines
    assert len(counts(lines)) == 2


def test_reset_and_undo_forget(chat: Chat, whom: str) -> None:
    lines = chat(whom, "first\nsecond\n/undo\nsecond\n/reset\nfirst\n/quit\nnever read\n", *LOCAL)
    first, second, second_again, first_again = (sum(count) for count in counts(lines))
    assert (first, second) == (first_again, second_again)
    assert second > first
    assert "taken back: second" in lines
    assert "forgotten" in lines


def test_a_system_prompt_from_the_flag_and_from_the_command(chat: Chat, whom: str) -> None:
    (plain,) = counts(chat(whom, "hello\n", *LOCAL))
    (by_flag,) = counts(chat(whom, "hello\n", *LOCAL, "--system", "be brief and kind"))
    (by_command,) = counts(chat(whom, "/system be brief and kind\nhello\n", *LOCAL))
    assert sum(by_flag) == sum(by_command) > sum(plain)


def test_what_cannot_be_done_is_said_and_the_chat_goes_on(chat: Chat, whom: str) -> None:
    lines = chat(whom, f"/undo\n/dance\n{'word ' * 1200}\nhello\n", *LOCAL)
    assert "nothing was asked yet" in lines
    assert "/dance is unknown:" in lines
    (failed,) = (line for line in lines if line.startswith("leftoff: "))
    assert "1024" in failed, "a prompt that does not fit names the context"
    assert len(counts(lines)) == 1


def test_both_give_the_same_reply(chat: Chat, server: Here) -> None:
    typed = "good morning\nhow are you\n"
    assert replies(chat(str(model_path("qwen35")), typed, *LOCAL)) == replies(chat(server.url, typed))


def test_at_a_terminal_two_interrupts_leave_and_one_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may be meant for a reply that has just ended."""
    keys: list[str | KeyboardInterrupt] = [
        "",
        KeyboardInterrupt(),
        "/system be kind",
        KeyboardInterrupt(),
        KeyboardInterrupt(),
        "never read",
    ]
    typed = iter(keys)

    def read(_prompt: str) -> str:
        line = next(typed)
        if isinstance(line, KeyboardInterrupt):
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert main(["chat", str(model_path("qwen35")), *LOCAL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("Ctrl-C again, or Ctrl-D, leaves") == 2
    assert "system prompt set" in lines, "the conversation went on"
    assert next(typed) == "never read"


def test_a_reply_that_was_stopped_is_kept_as_far_as_it_came(whom: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    command = [sys.executable, "-m", "leftoff", "chat", whom, *LOCAL, "--disk", "0", "--temperature", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("where does the road end\n")
        process.stdin.flush()
        while "/help for what you can do" not in process.stdout.readline():
            pass
        begin = process.stdout.read(8)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(f"/save {path}\n", PATIENCE_S)
    assert process.returncode == 0
    assert "stopped: the next question goes on from here" in rest
    history = ChatHistory()
    history.load(path)
    ((asked, reply),) = history.turns
    assert asked.text == "where does the road end"
    assert reply
    assert (begin + rest).startswith(printable(reply)[:8])


def test_nobody_there_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "http://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert "http://127.0.0.1:1 does not answer" in error
    assert "leftoff serve" in error
    assert error.count("\n") == 1


def test_what_is_no_letter_is_read_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hi\xff\n"), encoding="utf-8"))
    assert main(["chat", str(model_path("qwen35")), *GREEDY, *LOCAL]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert len(counts(output.out.splitlines())) == 1


@pytest.mark.parametrize("value", ["-1", "warm", "nan"])
def test_a_temperature_that_cannot_be(capsys: pytest.CaptureFixture[str], value: str) -> None:
    with pytest.raises(SystemExit):
        main(["chat", "model.gguf", f"--temperature={value}"])
    assert f"--temperature: {value!r} must be a number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://example.org/llm/v1", "https://example.org/llm"),
        ("localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("model.gguf", None),
        ("models/model.gguf", None),
        ("org/repo:Q8_0", None),
        ("", None),
    ],
)
def test_what_is_a_url_and_what_a_model(text: str, url: str | None) -> None:
    assert as_url(text) == url


def test_a_picture_is_shown_with_the_next_question(chat: Chat, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(png("red"))
    with served("--mmproj", str(projector_path("qwen3vl_merger", 64))) as seeing:
        lines = chat(seeing.url, f"/image {shot}\nwhat is this\n/reset\nwhat is this\n")
        missing = chat(seeing.url, "/image gone.png\nwhat is this\n")
    assert f"{shot} is shown with the next question" in lines
    shown, plain = (sum(count) for count in counts(lines))
    assert shown > plain
    assert missing[-1] == "leftoff: /image gone.png: No such file or directory"
    assert [sum(count) for count in counts(missing)] == [plain], "the question is asked without it"


def test_a_picture_for_a_model_that_sees_none_is_refused(chat: Chat, whom: str, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(png("red"))
    lines = chat(whom, f"/image {shot}\nwhat is this\n", *LOCAL)
    assert lines[-1].startswith(f"leftoff: /image {shot}: ")
    assert lines[-1].endswith(" sees no pictures, since it has no projector")
    assert len(counts(lines)) == 1


def test_a_question_may_have_many_lines(chat: Chat, server: Here) -> None:
    one = chat(server.url, "road \\\nends\n")
    block = chat(server.url, '"""\nroad \nends\n"""\n')
    other = chat(server.url, "road\nends\n")
    marked = chat(server.url, '"""road \nends"""\n"""road"""\n')
    assert len(counts(one)) == len(counts(block)) == 1
    assert len(counts(marked)) == 2, "the marks may stand on the lines of the text"
    assert sum(counts(marked)[0]) == sum(counts(block)[0])
    assert len(counts(other)) == 2


@pytest.mark.parametrize(("text", "fence"), [("the road ends", "```"), ("run\n````sh\nls\n````", "`````")])
def test_a_file_is_one_block_whatever_is_in_it(chat: Chat, server: Here, tmp_path: Path, text: str, fence: str) -> None:
    (tmp_path / "notes.md").write_text(text)
    chat(server.url, f"/file {tmp_path / 'notes.md'}\nroad\n/save {tmp_path / 'chat.json'}\n")
    (saved := ChatHistory()).load(tmp_path / "chat.json")
    assert saved.turns[0][0].text == f"notes.md:\n{fence}\n{text}\n{fence}\n\nroad"


def test_a_conversation_is_saved_and_loaded(chat: Chat, server: Here, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    (tmp_path / "notes.txt").write_text("the road ends")
    typed = f"/system be kind\n/file {tmp_path / 'notes.txt'}\nroad\nsea\n/save {path}\n"
    said = chat(server.url, typed)
    assert f"{path} saved" in said
    saved = ChatHistory()
    saved.load(path)
    assert saved.system == "be kind"
    assert [asked.text for asked, _ in saved.turns] == ["notes.txt:\n```\nthe road ends\n```\n\nroad", "sea"]
    prompt = sum(counts(said)[-1])
    (after,) = counts(chat(server.url, f"/load {path}\nsun\n"))
    assert sum(after) > prompt, "it goes on with all that was said"


@pytest.mark.parametrize(
    ("command", "content", "problem"),
    [
        ("/load", None, "No such file or directory"),
        ("/load", b"no JSON", "JSON is malformed"),
        ("/load", b'{"messages": [{"role": "user", "content": "hi"}]}', "do not take turns"),
        ("/file", bytes((1 << 20) + 1), "it has more than 1 MiB"),
        ("/file", b"\xff\xfe", "it is no text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_said(
    chat: Chat, server: Here, tmp_path: Path, command: str, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    said = chat(server.url, f"{command} {path}\n")
    assert said[-1].startswith(f"leftoff: {command} {path}: ")
    assert problem in said[-1]
