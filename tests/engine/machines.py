"""Machines as folders with the files by which Linux shows its devices and its memory."""

from pathlib import Path


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
