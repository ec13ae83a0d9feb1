"""What fits a card is reckoned by the code of `--fit`, and the README shows it."""

import re
from pathlib import Path

from lab.gpu.cards import ROWS, markdown

README = (Path(__file__).parents[3] / "README.md").read_text()
SHOWN = re.findall(r"^\| \d+ GB \| .* \|$", README, re.MULTILINE)


def test_the_readme_has_these_rows() -> None:
    starts = [f"| {row.card} GB | {row.model}, {row.quant} | {row.file_gb} GB |" for row in ROWS]
    assert [shown for shown, start in zip(SHOWN, starts, strict=True) if not shown.startswith(start)] == []


def test_a_row_is_reckoned() -> None:
    """One stands for all: each takes seconds."""
    assert markdown(ROWS[0]) == SHOWN[0]
