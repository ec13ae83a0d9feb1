"""A change that breaks a test is found, one that hangs is found by time, and one that no test minds survives."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

CODE = """
def count(left, spare=0):
    result = 0
    while left != 0:
        left -= 1
        result += 1
    return result
"""
TEST = """
from counting import count

def test_count():
    assert count(3) == 3
"""
JUDGE = """
import pathlib, sys
from lab.mutants import judge
from lab.mutants.change import changes_of
from lab.mutants.covering import Test

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root))
changes = changes_of(root / "counting.py", root)
# Of processor time, and nothing but the hang takes that much.
jury = judge.Judge(root, root, ["json"], jobs=2, budget_s=1, start_s=0.5, busy=4000)
trials = [(change, [Test("test_count.py::test_count", 0.01)]) for change in changes.values()]
names = {change: name for name, change in changes.items()}
for verdict in jury.judge(trials):
    print(names[verdict.change].partition("  =>  ")[2], "|", verdict.found_by)
"""


def test_each_change_is_judged_by_its_tests(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(CODE)
    (tmp_path / "test_count.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    verdicts = dict(line.split(" | ") for line in done.stdout.splitlines())
    test = "test_count.py::test_count"
    assert verdicts == {
        "def count(left, spare=1):": "None",
        "result = 1": test,
        "while left == 0:": test,
        "while left != 1:": test,
        "left += 1": "time",
        "left -= 2": "time",
        "result -= 1": test,
        "result += 2": test,
    }
