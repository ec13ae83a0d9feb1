"""What llama.cpp says arrives as lines of a Python logger, and its errors are kept to explain failures."""

import ctypes as C
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leftoff.engine.binding.library import LogCapture, load_library
from leftoff.engine.errors import ModelError
from leftoff.engine.model import Model
from tests.factory import model_path

INFO, WARNING, ERROR, CONTINUED = 2, 3, 4, 5


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "leftoff.llama")
    return caplog


def say(capture: LogCapture, *pieces: tuple[int, str]) -> None:
    """As C does: through the pointer that llama.cpp is given."""
    address = C.cast(capture.callback, C.c_void_p)
    call = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(address.value or 0)
    for level, text in pieces:
        call(level, text.encode(), None)


def test_loading_a_model_is_told_in_whole_lines(log: pytest.LogCaptureFixture) -> None:
    Model(model_path("llama")).close()
    told = [record.getMessage() for record in log.records if record.name == "leftoff.llama"]
    assert any("general.architecture" in line for line in told)
    assert not any("\n" in line or line != line.strip() or not line for line in told)
    assert {record.levelno for record in log.records} == {logging.DEBUG}, "nothing that a user must read"


def test_the_reason_of_a_failure_is_in_the_log_and_in_the_error(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "unknown.gguf"
    size = (5).to_bytes(8, "little")
    path.write_bytes(model_path("llama").read_bytes().replace(size + b"llama", size + b"lhama", 1))
    with pytest.raises(ModelError) as raised:
        Model(path)
    errors = [record.getMessage() for record in log.records if record.levelno == logging.ERROR]
    assert errors
    assert str(raised.value) == f"llama.cpp cannot load {path}: {'; '.join(errors)}"
    assert load_library().log.take_errors() == "", "told once"


def test_pieces_of_a_line_are_joined(log: pytest.LogCaptureFixture) -> None:
    say(
        LogCapture(),
        (INFO, "loading"),
        (CONTINUED, " ."),
        (CONTINUED, "."),
        (CONTINUED, " done\nnext "),
        (INFO, "one\n"),
    )
    assert log.messages == ["loading .. done", "next one"]


def test_a_continued_line_keeps_its_level(log: pytest.LogCaptureFixture) -> None:
    capture = LogCapture()
    say(capture, (ERROR, "no "), (CONTINUED, "memory\n"), (WARNING, "slow\n"), (INFO, "\n\n"), (99, "strange\n"))
    levels = [(record.levelno, record.getMessage()) for record in log.records]
    assert levels == [(logging.ERROR, "no memory"), (logging.WARNING, "slow"), (logging.DEBUG, "strange")]
    assert capture.take_errors() == "no memory"


def test_the_last_errors_are_remembered_and_told_once() -> None:
    capture = LogCapture()
    say(capture, *((ERROR, f"error {number}\n") for number in range(20)))
    assert capture.take_errors() == "; ".join(f"error {number}" for number in range(12, 20))
    assert capture.take_errors() == ""


def test_lines_can_be_collected_instead_of_logged(log: pytest.LogCaptureFixture) -> None:
    capture = LogCapture()
    with capture.collected() as lines:
        say(capture, (INFO, "KV buffer "), (CONTINUED, "size\n"), (ERROR, "no memory\n"))
    say(capture, (ERROR, "after\n"))
    assert lines == ["KV buffer size", "no memory"]
    assert log.messages == ["after"]
    assert capture.take_errors() == "after"


def test_text_that_is_no_text_does_no_harm(log: pytest.LogCaptureFixture) -> None:
    capture = LogCapture()
    capture.callback(ERROR, b"caf\xe9\n", None)
    capture.callback(ERROR, None, None)
    assert log.messages == ["caf\N{REPLACEMENT CHARACTER}"]


def test_threads_log_at_the_same_time(log: pytest.LogCaptureFixture) -> None:
    capture = LogCapture()
    pieces = [(INFO, "a whole line\n")] * 200
    threads = [threading.Thread(target=say, args=(capture, *pieces)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.messages == ["a whole line"] * 800


def test_one_thread_neither_takes_nor_collects_the_lines_of_another(log: pytest.LogCaptureFixture) -> None:
    capture = LogCapture()

    def fail() -> str:
        say(capture, (ERROR, "no such "), (CONTINUED, "file\n"))
        with ThreadPoolExecutor(1) as other:
            assert other.submit(capture.take_errors).result() == ""
        return capture.take_errors()

    with capture.collected() as lines, ThreadPoolExecutor(1) as other:
        say(capture, (INFO, "KV "))
        assert other.submit(fail).result() == "no such file"
        say(capture, (CONTINUED, "buffer\n"))
    assert lines == ["KV buffer"]
    assert log.messages == ["no such file"]
