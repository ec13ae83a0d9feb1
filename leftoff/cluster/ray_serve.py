"""leftoff on Ray Serve, which starts, places, restarts and scales `leftoff serve` processes.

    serve run leftoff.cluster:app model=/models/m.gguf index=redis://host:6379 store=s3://bucket/cache

The ingress is the application of `leftoff route`, so a request takes the same path with Ray and without: from the
router straight to a process, which is found in the index or in the roster of those that Ray has started.
"""

import asyncio
import math
import re
import secrets
import subprocess
import sys
from contextlib import suppress
from typing import Any

import msgspec
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from leftoff.cluster.app import RouterApp
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.roster import Roster

REQUESTS, READ_S = "requests", "read_s"  # of `Work`, as Ray's metrics
_URL = re.compile(r"http://[\w.:\[\]-]+:\d+")
_ROSTER = "roster"
_MAX_REQUESTS = 2560  # at one ingress: what limits is the queue of each server
_LEAVE_S = 60.0  # for the requests of a replica that is to stop
_STOP_S = 15.0  # for its process after that


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of the application, as `serve run` and serve.yaml give them."""

    model: str = ""  # for `leftoff serve`; the model that comes with leftoff if it is empty
    index: str = ""  # redis://…: without it replicas share nothing, and are chosen by what was sent to them
    store: str = ""  # s3://…, gs://…, az://… or file:///…
    flags: str = ""  # more flags for `leftoff serve`, as on a command line
    min_replicas: int = 1
    max_replicas: int = 4
    num_cpus: float = 1.0  # of each replica
    num_gpus: float = 0.0
    target_requests: float = 8.0  # at a replica, on average, before another is started
    target_read_s: float = 5.0  # seconds of prompts to be read at a replica, on average, before another is started
    ingresses: int = 1


class Replica:
    """One `leftoff serve` process on this node. Ray makes one of these per replica."""

    def __init__(self, flags: list[str], roster: Any) -> None:  # noqa: ANN401
        host = ray.util.get_node_ip_address()
        command = [sys.executable, "-m", "leftoff", "serve", *flags, "--host", host, "--port", "0"]
        self._roster = roster
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._url = self._listening_url()

    def _listening_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _URL.search(line):
                return match[0]
        raise RuntimeError(f"leftoff serve ended with exit code {self._process.wait()}: its log says why")

    async def __del__(self) -> None:
        """Ray calls it to stop a replica, which first ends what it has begun; what is left after that Ray kills."""
        with suppress(Exception):  # the roster may stop at the same time
            async with asyncio.timeout(_LEAVE_S):
                while (await self._roster.leave.remote(self._url)).requests:
                    await asyncio.sleep(1)
        self._process.terminate()
        await asyncio.to_thread(self._process.wait)

    async def check_health(self) -> None:
        """Ray calls it every few seconds, and starts another replica if it raises."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"leftoff serve has ended with exit code {code}")
        self._roster.enter.remote(self._url)  # not awaited: this process is well whether the roster is or not

    async def record_autoscaling_stats(self) -> dict[str, float]:
        work = await self._roster.work.remote(self._url)
        return {REQUESTS: work.requests, READ_S: work.read_s}


class ScaleByWork:
    """Ray's autoscaling policy: as many replicas as the requests need, and as the prompts that wait to be read do."""

    def __init__(self, target_requests: float = 8.0, target_read_s: float = 5.0) -> None:
        self._targets = {REQUESTS: target_requests, READ_S: target_read_s}

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        told = ctx.aggregated_metrics or {}
        return max(math.ceil(sum(told.get(name, {}).values()) / target) for name, target in self._targets.items()), {}


def app(args: dict[str, Any]) -> serve.Application:
    """Builds the application; `serve run leftoff.cluster:app KEY=VALUE…` and serve.yaml call it."""
    options = msgspec.convert(args, Options, strict=False)
    flags = [*([options.model] if options.model else []), *options.flags.split()]
    for name, value in (("--index", options.index), ("--store", options.store)):
        flags += [name, value] if value else []
    policy = AutoscalingPolicy(
        policy_function=ScaleByWork,
        policy_kwargs={"target_requests": options.target_requests, "target_read_s": options.target_read_s},
    )
    replicas = serve.deployment(
        Replica,
        name="replica",
        ray_actor_options={"num_cpus": options.num_cpus, "num_gpus": options.num_gpus},
        health_check_period_s=2,
        graceful_shutdown_timeout_s=_LEAVE_S + _STOP_S,
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas, max_replicas=options.max_replicas, policy=policy
        ),
    )
    ingress = serve.deployment(
        serve.ingress(_ingress(options.index or None))(),
        name="ingress",
        num_replicas=options.ingresses,
        max_ongoing_requests=_MAX_REQUESTS,
        ray_actor_options={"num_cpus": 0},
    )
    roster = serve.deployment(Roster, name=_ROSTER, ray_actor_options={"num_cpus": 0}).bind()
    return ingress.bind(replicas.bind(flags, roster), roster)


def _ingress(index: str | None) -> Any:  # noqa: ANN401
    """What Ray calls in each ingress to make its application."""

    def build() -> RouterApp:
        roster = serve.get_deployment_handle(_ROSTER, serve.get_replica_context().app_name)
        router = secrets.token_hex(8)

        async def find(fleet: Fleet) -> list[str]:
            urls: list[str]
            urls, fleet.leaving = await roster.exchange.remote(router, fleet.work)
            return urls

        return RouterApp(index, find)

    return build
