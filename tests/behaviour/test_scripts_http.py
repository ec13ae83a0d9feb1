"""What clients do, over HTTP: hardly more is read than is new, however many slots there are."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from lab.bench.client import Client
from lab.bench.play import play
from lab.bench.side import Station
from lab.bench.workload import WORKLOADS, Workload
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.factory import Scale, model_path
from tests.lab.bench.texts import small_texts

ALLOWED = 1.03
CONTEXT_TOKENS = 1 << 14
PLAYED = [workload for workload in WORKLOADS.values() if not workload.needs_own_server and workload.name != "resumed"]
# What one client does after the other is played in one slot, on each memory kind, in
# tests/cache/test_cache_scripts_real.py: over HTTP on one of them. What several do at once is played on all.
CROWDS = ("agents", "subagents")
CROWDED = [("qwen35", 1), ("llama", 4), ("mamba2", 4), ("gemma3", 4)]
PLAYS = [(("qwen35", 4), workload) for workload in PLAYED] + [
    (server, workload) for server in CROWDED for workload in PLAYED if workload.name in CROWDS
]


def name_of(value: tuple[str, int] | Workload) -> str:
    return value.name if isinstance(value, Workload) else f"{value[0]}, slots {value[1]}"


@pytest.fixture(scope="module")
def station(request: pytest.FixtureRequest) -> Iterator[Station]:
    architecture, slots = request.param
    model = model_path(architecture, Scale(context_length=CONTEXT_TOKENS))
    settings = Settings(model=str(model), ctx=CONTEXT_TOKENS, threads=1, ram=1024, disk=0, slots=slots, draft="off")
    with open_host(settings) as host, serving(host) as url, closing(Client(url)) as client:
        yield Station(client)


@pytest.mark.parametrize(("station", "workload"), PLAYS, indirect=["station"], ids=name_of, scope="module")
def test_hardly_more_is_read_than_is_new(station: Station, workload: Workload) -> None:
    station.client.forget()
    run = play(workload.script(small_texts(1, 0.1)), station, workload.setup)
    assert run.num_miscounted == 0
    assert run.unavoidable
    assert run.computed <= ALLOWED * run.unavoidable, f"{run}: {run.computed / run.unavoidable:.3f} of the unavoidable"
