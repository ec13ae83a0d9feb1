"""The page on a package index: README.md without its picture and relative links, which lead nowhere from there.

All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

_PICTURE = re.compile(r"<picture>.*?</picture>\n\n")
_RELATIVE_LINK = re.compile(r"\[([^]]+)\]\((?!https?:)[^)]+\)")

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(
    long_description=_RELATIVE_LINK.sub(r"\1", _PICTURE.sub("", readme)),
    long_description_content_type="text/markdown",
)
