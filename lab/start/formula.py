"""Fills the Homebrew formula with version and hash of the source archive: `lab.start.formula TEMPLATE DIST`."""

import hashlib
import sys
from pathlib import Path

from leftoff import __version__


def filled(template: str, archive: Path) -> str:
    """The formula that installs this archive."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    formula = template[template.index("class ") :]  # the comment says what is filled in
    return formula.replace("@VERSION@", __version__).replace("@SHA256@", digest)


def main(template: str, folder: str) -> None:
    print(filled(Path(template).read_text(), Path(folder, f"leftoff-{__version__}.tar.gz")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
