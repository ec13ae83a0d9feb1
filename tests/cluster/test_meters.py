"""The router's figures, and the dashboard that shows them."""

import json
import re
from pathlib import Path

import httpx
import yaml

from leftoff.cluster.chain import Chain
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.memory import Known
from leftoff.cluster.meters import Meters
from leftoff.cluster.router import ReplicaChoice
from tests.cluster.test_fleet import replica
from tests.patience import PATIENCE_S
from tests.server.embedded import embedded_server

DEPLOY = Path(__file__).parents[2] / "deploy"
NO_CHAIN = Chain((), ())


def figures() -> str:
    fleet = Fleet()
    view = fleet.beat(replica("a"))
    meters = Meters(fleet)
    meters.chosen(ReplicaChoice(view, NO_CHAIN, view.estimate(NO_CHAIN, Known((), 0, ()))), 0.001)
    meters.retries.inc()
    meters.refusals.inc()
    meters.breaks.inc()
    return meters.text().decode()


def test_every_figure_of_the_dashboard_is_one_that_is_told() -> None:
    with embedded_server() as url:
        told = figures() + httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    panels = json.loads((DEPLOY / "kubernetes" / "monitor" / "grafana.json").read_text())["panels"]
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"(?:leftoff_|llamacpp:)\w+", target["expr"])
    }
    assert len(shown) >= 12
    assert [name for name in shown if name not in told] == []


def test_the_examples_for_ray_are_read_as_they_are_written() -> None:
    serve = yaml.safe_load((DEPLOY / "ray" / "serve.yaml").read_text())["applications"]
    service = yaml.safe_load((DEPLOY / "ray" / "rayservice.yaml").read_text())
    within = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    options = (DEPLOY.parent / "leftoff" / "cluster" / "ray_serve.py").read_text()
    for (application,) in (serve, within):
        assert application["import_path"] == "leftoff.cluster:app"
        assert [name for name in application["args"] if f"\n    {name}: " not in options] == []
