"""A change rewrites one place of the source, and what no test should pin down is left alone."""

import ast
from pathlib import Path

from lab.mutants.change import changes_of

ROOT = Path(__file__).parents[3]

SOURCE = '''"""Docs."""
import logging

LIMIT = 3
logger = logging.getLogger(__name__)


class Tank:
    depth: int = 2

    def __init__(self) -> None:
        self.level = 0

    def __repr__(self) -> str:
        return str(1 + 1)

    def fill(self, amount: int = 5) -> bool:
        """Fills 1."""
        assert amount > 0, "none"
        if self.level + amount <= LIMIT and not self.is_shut:
            return True
        logger.info("over %d", 7)
        for _ in range(amount):  # less < more
            self.level -= -1
            break
        self.spill(é := "ä", min(1, 2) or LIMIT)
        raise ValueError(f"{amount + 1}")
'''

CHANGES = {
    "def fill(self, amount: int = 6) -> bool:",
    "if self.level - amount <= LIMIT and not self.is_shut:",
    "if self.level + amount < LIMIT and not self.is_shut:",
    "if self.level + amount <= LIMIT or not self.is_shut:",
    "if self.level + amount <= LIMIT and self.is_shut:",
    "return False",
    "pass",
    "self.level += -1",
    "self.level -= 1",
    "self.level -= -2",
    "continue",
    'self.spill(é := "ä", max(1, 2) or LIMIT)',
    'self.spill(é := "ä", min(2, 2) or LIMIT)',
    'self.spill(é := "ä", min(1, 3) or LIMIT)',
    'self.spill(é := "ä", min(1, 2) and LIMIT)',
    "self.level = 1",
}


def test_each_change_is_in_one_place_and_nothing_that_only_people_read_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "tank.py"
    path.write_text(SOURCE)
    changes = changes_of(path, tmp_path)
    assert {name.partition("  =>  ")[2] for name in changes} == CHANGES
    assert sum(name.endswith("=>  pass") for name in changes) == 3, "the early return, the call, and the raise"


def test_a_change_is_found_by_tests_of_its_own_statement(tmp_path: Path) -> None:
    path = tmp_path / "tank.py"
    path.write_text(SOURCE)
    lines = {name.partition("  =>  ")[2]: change.lines for name, change in changes_of(path, tmp_path).items()}
    assert lines["return False"] == range(21, 22)
    assert lines["if self.level - amount <= LIMIT and not self.is_shut:"] == range(20, 21), (
        "not those of what it guards"
    )
    assert lines["def fill(self, amount: int = 6) -> bool:"] == range(18, 28), "whoever calls it"


def test_every_change_of_real_code_is_a_program_that_differs() -> None:
    path = ROOT / "leftoff" / "drafts" / "trail.py"
    source = path.read_text()
    before = ast.dump(ast.parse(source))
    for name, change in changes_of(path, ROOT).items():
        assert ast.dump(ast.parse(change.apply(source))) != before, name
