"""Tables and files made from a comparison."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.bench import markdown
from lab.bench.comparison import Comparison, Figure, Outcome, Played
from lab.bench.findings import findings
from lab.bench.play import Run
from lab.bench.record import record
from lab.bench.table import COLUMNS, rows, show_times
from lab.bench.workload import WORKLOADS
from lab.chart import draw
from lab.report import replaced

MIB = 1 << 20


def run(computed: int, first_token_ms: float, **more: int) -> Run:
    return Run(
        prompt_tokens=5000,
        computed=computed,
        cached=5000 - computed,
        unavoidable=1000,
        first_token_ms=[first_token_ms] * 19 + [9 * first_token_ms],
        wall_ms=20 * first_token_ms,
        peak_bytes=200 * MIB,
        **more,
    )


@pytest.fixture
def comparison() -> Comparison:
    ours = Outcome("leftoff", (run(1000, 10), run(1010, 14), run(1000, 12)))
    theirs = Outcome("<llama> & server", (run(2000, 40), run(2000, 42, num_refused=3), run(2000, 60)))
    return Comparison(
        "python -m lab.bench --against x",
        ("2 < 3 & 4",),
        ("leftoff", "<llama> & server"),
        3,
        (Played(WORKLOADS["edit"], (ours, theirs)), Played(WORKLOADS["agents"], (theirs, ours))),
    )


def test_medians_and_their_spread() -> None:
    assert Figure.of([3, 1, 2]) == Figure(2, 1, 3)
    outcome = Outcome("x", (run(1000, 10), run(1100, 30), run(1050, 20)))
    assert outcome.ratio == Figure(1.05, 1.0, 1.1)
    assert outcome.first_token_p50 == Figure(20, 10, 30)
    assert outcome.first_token_p95 == Figure(20, 10, 30)
    assert Outcome("x", (Run(first_token_ms=[1.0]),)).unavoidable is None


def test_the_table_has_a_row_for_each_server_and_their_quotient(comparison: Comparison) -> None:
    made = rows(comparison)
    assert {len(row.cells) for row in made} == {len(COLUMNS)}
    ours, theirs, quotient, *_ = (row.cells for row in made)
    assert ours[:6] == (
        "edit and come back",
        "leftoff",
        "1,000 (1,000 … 1,010)",
        "1,000",
        "1.000 (1.000 … 1.010)",
        "4,000 (3,990 … 4,000)",
    )
    assert ours[6] == "12 ms (10 … 14 ms)"
    assert theirs[:4] == ("", "<llama> & server", "2,000", "1,000")
    assert quotient[2] == "2.00x (1.98 … 2.00x)"
    assert quotient[6] == "4.00x (3.00 … 5.00x)"


def test_quotients_keep_three_digits() -> None:
    assert [show_times(number) for number in (0.5, 5.94, 12.34, 123.4)] == ["0.50x", "5.94x", "12.3x", "123x"]


def test_losses_are_said_and_draws_are_not(comparison: Comparison) -> None:
    said = findings(comparison)
    assert "leftoff: computed / unavoidable is above 1.03 in 4 agents on 2 slots 2.00." in said
    assert "leftoff takes more than <llama> & server, wall time: 4 agents on 2 slots (4.00x)." in said
    assert "leftoff takes more than <llama> & server, peak RSS: no workload." in said
    assert "edit and come back: <llama> & server refused 3 requests, and the client asked again with less." in said


def test_plots_are_xml_with_a_bar_for_each_value(comparison: Comparison) -> None:
    for chart in markdown.charts(comparison):
        root = ElementTree.fromstring(draw(chart))
        bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "11"]
        assert len(bars) == 2 + 2 * 2, "the legend, and two workloads on two servers"
        assert max(float(bar.get("width", 0)) for bar in bars) == 420


def test_a_part_of_a_file_is_replaced_and_the_rest_stays(comparison: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text(
        "# Title\n\nbefore\n\n<!-- bench <llama> & server -->\nold\n<!-- end bench <llama> & server -->\n\nafter\n"
    )
    for _ in range(2):
        markdown.write(comparison, path)
    text = path.read_text()
    assert text.startswith("# Title\n\nbefore\n\n<!-- bench")
    assert text.endswith("server -->\n\nafter\n")
    assert "old" not in text
    assert text.count("| edit and come back | leftoff |") == 1
    plots = [line[4:-1] for line in text.splitlines() if line.startswith("![](")]
    assert len(plots) == 4
    assert all((tmp_path / plot).read_text().startswith("<svg") for plot in plots)


def test_a_page_without_room_gets_the_small_table(comparison: Comparison, tmp_path: Path) -> None:
    path, name = tmp_path / "README.md", "<llama> & server short"
    path.write_text(f"before\n<!-- bench {name} -->\n<!-- end bench {name} -->\nafter\n")
    markdown.write(comparison, path)
    text = path.read_text()
    assert "| edit and come back | 1.00 | 2.00 | 4.00x | 4.00x |\n" in text
    assert text.endswith("-->\nafter\n")
    assert "wall time: " not in text
    assert [*tmp_path.iterdir()] == [path]


def test_what_has_no_place_yet_comes_last() -> None:
    assert replaced("# Title\n", "cold", "text") == "# Title\n\n<!-- bench cold -->\n\ntext\n<!-- end bench cold -->\n"


def test_the_record_has_every_run(comparison: Comparison) -> None:
    (kept,) = json.loads(record([comparison]))
    ours = kept["workloads"]["edit"]["servers"]["leftoff"]
    assert [run["computed"] for run in ours["runs"]] == [1000, 1010, 1000]
    assert ours["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.01}
    assert kept["rounds"] == 3
