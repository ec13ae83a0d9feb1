"""The README is short, and its figures are those of other pages. `test_docs_blocks.py` runs its commands."""

import re
from pathlib import Path

from leftoff.cli.models import listed
from leftoff.engine.choice import Room
from leftoff.scenes import SCENES
from tests.pages import ROOT, blocks_of

README = (ROOT / "README.md").read_text()
GIB = 1 << 30
MOST = 131_072  # tokens that --fit chooses by itself


def rows(text: str) -> dict[str, list[str]]:
    """The first row of each name in the tables of a text. A name is a first cell, without its link."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    named = [(re.sub(r"^\[(.*)\]\(.*\)$", r"\1", first), rest) for first, *rest in cells]
    return {name: rest for name, rest in reversed(named) if name.strip("-: ")}


def section(title: str) -> dict[str, list[str]]:
    return rows(README.partition(f"\n## {title}\n")[2].partition("\n## ")[0])


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_it_begins_with_how_to_start() -> None:
    first = next(number for number, line in enumerate(README.splitlines()) if line.startswith("## "))
    assert README.splitlines()[first] == "## Start"
    assert first < 30


def test_a_card_of_24_gb_has_its_lines_to_claude_code() -> None:
    (commands,) = (block.text for block in blocks_of(ROOT / "README.md") if "leftoff engine install" in block.text)
    assert [line.split("  ")[0] for line in commands.splitlines()] == [
        "leftoff engine install",
        "leftoff serve qwen3.6-27b --kv-type q8_0",
        "leftoff launch claude",
    ]


def test_the_makefile_runs_what_ci_runs() -> None:
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()
    assert "make lint test" in README


def test_what_agents_reuse_is_what_make_clients_has_played() -> None:
    played, shown = rows(page("clients.md")), section("Connect your agent")
    agents = {name: cells for name, cells in shown.items() if name in played}
    assert len(agents) >= 4
    for name, cells in agents.items():
        _, first, following, _, fresh = played[name]
        assert cells == [first, following, fresh], name


def test_the_figures_beside_llama_server_are_those_of_the_benchmarks() -> None:
    measured, shown = rows(page("comparison.md")), section("Why it is different")
    compared = {name: cells for name, cells in shown.items() if name in measured}
    assert len(compared) >= 6
    assert {name: measured[name][:2] for name in compared} == compared


def test_what_fits_a_card_is_what_leftoff_models_reckons() -> None:
    shown = re.findall(r"^\| (\d+) GB \| `(.*?)` \| (.*?) GB \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    assert len(shown) >= 6
    for card, name, file_gb, *contexts in shown:
        room = Room(64 * GIB, {"GPU": (int(card) - 1) * GIB}, {"GPU": GIB})
        for kv_type, context in zip(("f16", "q8_0"), contexts, strict=True):
            (found,) = (each for each in listed(room, kv_type) if each.name == name)
            choice = found.reckoned.choice
            assert file_gb == f"{found.file_bytes / 1e9:.1f}", name
            assert (choice.gpu_layers, choice.n_cpu_moe) == (found.model.layers + 1, 0), (
                f"{name} is not all on the card"
            )
            rounded = choice.num_cells if choice.num_cells == MOST else choice.num_cells // 1000 * 1000
            assert context == f"{rounded:,}", f"{name}, {kv_type}, on {card} GB"


def test_the_demo_shown_is_the_one_that_is_played() -> None:
    """tests/cli/test_demo.py plays it."""
    (shown,) = (block.text for block in blocks_of(ROOT / "docs" / "demo.md"))
    for scene in SCENES:
        assert scene.title in shown
        assert scene.story in shown
        for step in scene.steps:
            assert f"{step.label} · {step.question}" in shown
    assert "The cache helped in every scene." in shown
    (excerpt,) = (block.text for block in blocks_of(ROOT / "README.md") if block.kind == "text")
    assert all(line.strip() in shown for line in excerpt.splitlines())


def test_the_tests_that_stand_beside_promises_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not Path(ROOT / name).exists()] == []
