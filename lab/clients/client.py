"""What a client is to the laboratory: its packages, its settings, and how it is made to say something."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Client:
    """One entry of the catalog.

    In `connect`, `begin`, `go_on`, `environment` and `files`, `{url}` is the server's address, `{home}` a home folder
    of the client's own, `{bin}` the folder with its commands, `{node}` a recent Node.js, `{scripts}` the folder of
    scripts, `{python}` a Python with its packages, and `{own_python}` that of leftoff.
    """

    name: str
    title: str
    registry: Literal["npm", "pypi"]
    packages: tuple[str, ...]  # pinned; the first names the version
    begin: tuple[str, ...]  # the command of a new conversation; questions follow
    go_on: tuple[str, ...] = ()  # the next turn of the last one; without it, `begin` takes all questions at once
    connect: str = ""  # Markdown for people; a client with a script has lines of that instead
    script: str = ""
    part: str = ""  # of the script's lines
    folder: str = ""  # where it is installed, if not under its name: clients may share packages
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # in the home folder
    share: float = 0.9  # of a prompt that begins a conversation: so much of it must be reused
    num_turns: int = 3  # in one command
    sees_pictures: bool = False  # gives a tool's picture to the model
    rules: str = ""  # the file with the rules of a project that it puts into its prompts: one of 12,000 tokens
    compacts: str = ""  # the words that make it compact a conversation
    offers: str = ""  # a tool that it offers in the turns of conversations, and in no other requests
    calls_notes: bool = True  # it offers the tools of `notes_mcp.py`
    retells: bool = False  # sends calls back in words of its own, so that they are read again
    reorders: bool = False  # puts instructions behind the conversation, so that every prompt begins anew before them
    is_chat: bool = True  # otherwise its requests are not turns of conversations, and are counted only

    @property
    def version(self) -> str:
        return self.packages[0].rpartition("==" if self.registry == "pypi" else "@")[2]


@dataclass(frozen=True)
class Place:
    """Where a client is installed and runs."""

    url: str
    home: Path
    bin: Path
    node: Path
    python: Path

    def fill(self, text: str) -> str:
        """The text with every placeholder replaced; other braces stay."""
        names = {name: str(getattr(self, name)) for name in ("url", "home", "bin", "node", "python")}
        for name, value in {**names, "scripts": str(SCRIPTS), "own_python": sys.executable}.items():
            text = text.replace(f"{{{name}}}", value)
        return text
