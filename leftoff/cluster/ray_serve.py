"""leftoff on Ray Serve, which starts, places, restarts and scales `leftoff serve` processes.

    serve run leftoff.cluster:app model=/models/m.gguf index=redis://host:6379 store=s3://bucket/cache

The ingress is the application of `leftoff route`, so a request takes the same path with Ray and without: from the
router straight to a process, which is found in the index or in the roster of those that Ray has started.
"""

import asyncio
import math
import os
import re
import secrets
import shlex
import socket
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
from leftoff.cluster.own_folder import OwnFolder
from leftoff.cluster.roster import Roster
from leftoff.config import Settings
from leftoff.disk.secret import new_secret
from leftoff.server.app import guards
from leftoff.server.http.origins import KnownHosts
from leftoff.store.fleet_key import read_fleet_key

REQUESTS, READ_S = "requests", "read_s"  # of `Work`, as Ray's metrics
_URL = re.compile(r"http://[\w.:\[\]-]+:\d+")
_ROSTER = "roster"
_MAX_REQUESTS = 2560  # at one ingress: what limits is the queue of each server
_CHECK_S = 1.0  # between two checks of a replica's health; Ray starts another after three that failed
_LEAVE_S = 60.0  # for the requests of a replica that is to stop
_ROSTER_S = 2.0  # for an answer of the roster, which ends with the application
_STOP_S = 15.0  # for its process after that


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of the application, as `serve run` and serve.yaml give them."""

    model: str = ""  # for `leftoff serve`; the model that comes with leftoff if it is empty
    index: str = ""  # redis://…: without it replicas share nothing, and are chosen by what was sent to them
    store: str = ""  # s3://…, gs://…, az://… or file:///…
    fleet_key: str = ""  # a file that every node has at this path
    allowed_host: list[str] = []  # names by which clients reach Ray, besides those of the machine
    cors: list[str] = []
    max_body: int = 64  # MiB of a request
    flags: str = ""  # more flags for `leftoff serve`, as on a command line
    api_key: str = ""  # that replicas ask for; several with commas
    host: str = ""  # that replicas listen on; the address of their node if it is empty
    min_replicas: int = 1
    max_replicas: int = 4
    num_cpus: float = 1.0  # of each replica
    num_gpus: float = 0.0
    target_requests: float = 8.0  # at a replica, on average, before another is started
    target_read_s: float = 5.0  # seconds of prompts to be read at a replica, on average, before another is started
    ingresses: int = 1


class Replica:
    """One `leftoff serve` process on this node. Ray makes one of these per replica."""

    def __init__(self, flags: list[str], host: str, api_key: str, roster: Any) -> None:  # noqa: ANN401
        self._folder = OwnFolder(flags)
        own = ("--host", host or ray.util.get_node_ip_address(), "--port", "0", "--cache-dir", str(self._folder.path))
        command = [sys.executable, "-m", "leftoff.cli.tethered", "serve", *flags, *own]
        environment = os.environ | ({"LEFTOFF_API_KEY": api_key} if api_key else {})  # not for all to see, as flags are
        self._roster = roster
        # The other end of its standard input is here: it ends when this process does.
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self._url = self._listening_url()

    def _listening_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _URL.search(line):
                return match[0]
        raise RuntimeError(f"leftoff serve ended with exit code {self._process.wait()}: its log says why")

    async def __del__(self) -> None:
        """Ray calls it to stop a replica, which first ends what it has begun; what is left after that Ray kills."""
        with suppress(Exception):  # the roster may stop at the same time: then it answers no more
            async with asyncio.timeout(_LEAVE_S):
                while (await asyncio.wait_for(self._roster.leave.remote(self._url), _ROSTER_S)).requests:
                    await asyncio.sleep(1)
        self._process.terminate()
        await asyncio.to_thread(self._process.wait)

    async def check_health(self) -> None:
        """Ray calls it every few seconds, and starts another replica if it raises."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"leftoff serve has ended with exit code {code}")
        self._roster.enter.remote(self._url)  # not awaited: this process is well whether the roster is or not

    async def record_autoscaling_stats(self) -> dict[str, float]:
        work = await asyncio.wait_for(self._roster.work.remote(self._url), _ROSTER_S)
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
    flags = [*([options.model] if options.model else []), *shlex.split(options.flags)]
    for name, value in (("--index", options.index), ("--store", options.store), ("--fleet-key", options.fleet_key)):
        flags += [name, value] if value else []
    policy = AutoscalingPolicy(
        policy_function=ScaleByWork,
        policy_kwargs={"target_requests": options.target_requests, "target_read_s": options.target_read_s},
    )
    replicas = serve.deployment(
        Replica,
        name="replica",
        ray_actor_options={"num_cpus": options.num_cpus, "num_gpus": options.num_gpus},
        health_check_period_s=_CHECK_S,
        graceful_shutdown_wait_loop_s=0.1,  # requests do not come through Ray: `__del__` waits for them
        graceful_shutdown_timeout_s=_LEAVE_S + _STOP_S,
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas, max_replicas=options.max_replicas, policy=policy
        ),
    )
    ingress = serve.deployment(
        serve.ingress(_ingress(options))(),
        name="ingress",
        num_replicas=options.ingresses,
        max_ongoing_requests=_MAX_REQUESTS,
        ray_actor_options={"num_cpus": 0},
    )
    roster = serve.deployment(Roster, name=_ROSTER, ray_actor_options={"num_cpus": 0}).bind()
    return ingress.bind(replicas.bind(flags, options.host, options.api_key, roster), roster)


def _ingress(options: Options) -> Any:  # noqa: ANN401
    """A function that makes the application of an ingress. Connections are Ray's, the other doors a server's."""

    def build() -> RouterApp:
        settings = Settings(
            api_key=tuple(filter(None, options.api_key.split(","))),
            cors=tuple(options.cors),
            allowed_host=tuple(options.allowed_host),
            max_body=options.max_body,
        )
        host = options.host or "0.0.0.0"
        addresses = KnownHosts.of(host, socket.gethostbyname(host), settings.allowed_host)
        roster = serve.get_deployment_handle(_ROSTER, serve.get_replica_context().app_name)
        router = secrets.token_hex(8)

        async def find(fleet: Fleet) -> list[str]:
            urls: list[str]
            urls, fleet.leaving = await roster.exchange.remote(router, fleet.work)
            return urls

        doors = guards(settings, addresses, new_secret())
        return RouterApp(options.index or None, find, doors, read_fleet_key(options.fleet_key))

    return build
