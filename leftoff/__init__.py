"""leftoff: an LLM server that picks up every prompt where it left off."""

import logging
from typing import Any

__version__ = "0.2.0"
__all__ = ["Session", "__version__"]

# A program that embeds leftoff decides what is shown; until it does, nothing is.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """`leftoff.Session`, imported when it is first used: commands that need no model start at once."""
    if name == "Session":
        from leftoff.session import Session  # noqa: PLC0415

        return Session
    raise AttributeError(f"module 'leftoff' has no attribute {name!r}")
