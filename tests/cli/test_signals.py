"""Who ends a command finds it gone, with all it has made: no processes, no folders, and the signal in the exit code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leftoff.cli.demo import Side
from leftoff.cli.signals import ended_by_signals
from leftoff.cli.talk import TalkError
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.scheduler.gate import Gate
from tests.factory import model_path
from tests.patience import PATIENCE_S, until


def cpu_ticks(process: int) -> int:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def has_model(process: int) -> bool:
    """Whether it has begun to load one; where that cannot be seen, it may be about to."""
    maps = Path(f"/proc/{process}/maps")
    return not maps.exists() or ".gguf" in maps.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_exception_and_then_what_it_was(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as exit_, ended_by_signals():
        os.kill(os.getpid(), number)
    assert exit_.value.code == 143
    assert signal.getsignal(number) == before


def test_nohup_is_heeded() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("is_playing", "number", "code"),
    [(False, signal.SIGTERM, 143), (True, signal.SIGINT, 130)],
    ids=["while it loads", "while it plays"],
)
def test_a_demo_that_is_ended_leaves_nothing(
    tmp_path: Path, is_playing: bool, number: signal.Signals, code: int
) -> None:
    model = [str(model_path("qwen35"))] * is_playing  # else the one that takes longer to load
    command = [sys.executable, "-m", "leftoff", "demo", *model, "--threads", "1"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert until(lambda: [*tmp_path.glob("leftoff-demo-*")] and has_model(process.pid))
        assert process.stdout is not None
        while is_playing and not process.stdout.readline().startswith(b"1 "):
            assert process.poll() is None
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_S)[1] == b""
    assert process.returncode == code
    assert [*tmp_path.glob("leftoff-demo-*")] == []


def test_a_side_of_the_demo_that_cannot_warm_up_is_closed(tmp_path: Path) -> None:
    """Its engine would take the process down when Python ends."""
    template = tmp_path / "refuses.jinja"
    template.write_text("{{ raise_exception('nothing can be said') }}")
    settings = Settings(
        model=str(model_path("qwen35")), chat_template_file=str(template), ctx=1024, threads=1, slots=1, disk=0
    )
    started: list[ModelHost] = []

    def start(gate: Gate) -> ModelHost:
        started.append(open_host(settings, gate=gate))
        return started[0]

    with pytest.raises(TalkError, match="nothing can be said"):
        Side([start], forgets=False)
    assert not started[0].is_alive


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes by Linux's /proc")
@pytest.mark.skipif(os.cpu_count() == 1, reason="one core has no workers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_simulation_that_is_ended_leaves_no_workers(number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "lab.simulate", "--sessions", "2,4,8,16,32", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert until(lambda: len(children.read_text().split()) >= 2)
        assert until(lambda: sum(cpu_ticks(int(child)) > 10 for child in children.read_text().split()) >= 2), "no work"
        workers = children.read_text().split()
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_S)[1] == b""
    assert process.returncode == code
    assert until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
