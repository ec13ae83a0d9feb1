"""The base of all errors, apart from other types: commands that only show help import nothing heavy.

With it, what is said of other errors, and of a word that was mistyped.
"""

import difflib
import re
from collections.abc import Iterable

_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


class LeftoffError(Exception):
    """Something that a person can solve: the message names the value and the way out."""


def reason_of(error: Exception) -> str:
    """The words of an error for a message, or its type where it has none.

    Those of a system error come without its number and its path, also where another error repeats them.
    """
    words = error.strerror if isinstance(error, OSError) else ""
    return words or _NUMBER.sub("", str(error)) or type(error).__name__


def meant(word: str, known: Iterable[str]) -> str:
    """`: did you mean --port?`, if one of the known words is close to this one; else nothing."""
    close = difflib.get_close_matches(word.lower(), [*known], 1, 0.65)
    return f": did you mean {close[0]}?" if close else ""
