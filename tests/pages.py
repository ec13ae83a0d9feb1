"""The pages of the repository, and the blocks of code in them: each is run by a test, or says why it is not.

    <!-- not run: it takes a GPU -->
    ```sh
    leftoff engine install cuda
    ```

Where one reason holds for a whole page: `<!-- no block of this page is run: … -->`. What a program prints, and a
drawing, is a block of `text`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
ADDRESS = "http://127.0.0.1:8080"  # that of the server which examples talk to
_BLOCK = re.compile(r"(?:^<!-- not run: (.*?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_WHOLE_PAGE = re.compile(r"^<!-- no block of this page is run: (.*?) -->$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page. `reason` says why it is not run; without one it is."""

    page: str
    line: int
    kind: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Its lines, with those joined that end in a backslash, and without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (line.split(" #")[0].strip() for line in lines) if line and line[0] != "#"]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    whole = _WHOLE_PAGE.search(text)
    return [
        Block(
            page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name,
            text.count("\n", 0, match.start(2)) + 1,
            match[2],
            match[3],
            match[1] or (whole[1] if whole else ""),
        )
        for match in _BLOCK.finditer(text)
    ]
