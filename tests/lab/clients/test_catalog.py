"""The catalog of clients: what the pages show is what `make clients` runs, and every version is pinned."""

import re
from pathlib import Path

import pytest

from lab.clients.catalog import CATALOG
from lab.clients.client import SCRIPTS, Client
from lab.clients.report import connect

ROOT = Path(__file__).parents[3]
CONNECT = (ROOT / "docs" / "connect.md").read_text()
PAGES = CONNECT + (ROOT / "docs" / "clients.md").read_text()


def squeezed(text: str) -> str:
    """Without white space, so that lines may be broken differently."""
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("client", CATALOG, ids=lambda client: client.name)
def test_the_pages_show_the_lines_that_are_run(client: Client) -> None:
    assert client.title.partition(",")[0] in " ".join(CONNECT.split())
    lines = squeezed(connect(client))
    blocks = re.findall(r"^```\w+\n(.*?)^```", PAGES, re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines() if "=" in line]
    shown = [part for part in (*blocks, *commands) if len(squeezed(part)) > 60 and squeezed(part) in lines]
    assert shown, f"nothing shows how {client.title} is connected"


@pytest.mark.parametrize("client", CATALOG, ids=lambda client: client.name)
def test_an_entry_is_whole(client: Client) -> None:
    assert all(re.fullmatch(r"[@\w./\[\]-]+(@|==)\d[\w.]*", package) for package in client.packages)
    assert re.fullmatch(r"\d+\.\d+\.\d+", client.version)
    assert not client.script or (SCRIPTS / client.script).exists()
    assert not re.search(r"\{[a-z_]+\}", connect(client)), "a placeholder"


def test_names_are_used_once() -> None:
    assert len({client.name for client in CATALOG}) == len(CATALOG)
