"""The model that comes with the package: a demonstration, so that the first run needs no download."""

from pathlib import Path

EMBEDDED = Path(__file__).with_name("leftoff-tiny-q8_0.gguf")
