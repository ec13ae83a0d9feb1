"""The folder of files that are too large, or not ours, to be in the project: it lies beside it, or is missing."""

from pathlib import Path

SHARED = Path(__file__).parents[2] / "shared" / "data"
