"""No test waits for a time and hopes that what it needs has happened by then: it waits for a condition."""

import ast
from pathlib import Path

from tests.patience import until

TESTS = Path(__file__).parent
# Where the time that passes is the subject itself.
TIMED = {
    "behaviour/kill_server.py": "kills at random moments",
    "behaviour/test_structured.py": "a thread is busy for longer than a limit",
    "cache/test_save_steps.py": "threads that take their time to copy",
    "cli/test_serve_handles.py": "the processor time that a waiting server uses",
    "cluster/test_app.py": "looks again and again, on an event loop",
    "cluster/test_index.py": "looks again and again, on an event loop",
    "cluster/test_router.py": "looks again and again, on an event loop",
    "conftest.py": "uvicorn is made to tick more often",
    "disk/kill_loop.py": "kills at random moments",
    "disk/mounted.py": "asks again and again, in a process of its own",
    "lab/box/test_play.py": "sleeps by a simulated clock",
    "patience.py": "looks again and again",
    "server/test_hosts_replaced.py": "work that goes on until it is stopped",
    "store/kill_loop.py": "kills at random moments",
    "store/parts.py": "a store that takes its time",
    "store/prove.py": "looks again and again whether machines share",
}


def sleeps(source: str) -> bool:
    """Whether it calls a function named `sleep` with a time that is not 0, which only lets others run."""
    if "sleep" not in source:  # then it need not be parsed
        return False
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    names = {"Name": "id", "Attribute": "attr"}
    return any(
        getattr(call.func, names.get(type(call.func).__name__, ""), "") == "sleep"
        and call.args
        and not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
        for call in calls
    )


def test_only_tests_of_time_sleep() -> None:
    found = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if sleeps(path.read_text())}
    assert found == TIMED.keys()


def test_a_sleep_is_found_however_it_is_called() -> None:
    assert sleeps("time.sleep(1)")
    assert sleeps("def f():\n    from time import sleep\n    sleep(seconds)")
    assert not sleeps("asyncio.sleep(0)")
    assert not sleeps("'time.sleep(1)'")


def test_a_condition_is_asked_until_it_holds() -> None:
    answers = iter([False, 0, "yes", False])
    assert until(lambda: next(answers))
    assert [*answers] == [False]
