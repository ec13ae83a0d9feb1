"""leftoff on Ray Serve: replicas as deployments, each a thin wrapper around one `leftoff serve` process.

    serve run leftoff.cluster:app model=/models/m.gguf index=redis://host:6379 store=s3://bucket/cache

Ray starts, watches and scales the replicas, and restarts those that die. The ingress reads requests and hands them to
the replica that the request router names (`ray_router.py`).
"""

import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leftoff.cluster import ray_link
from leftoff.cluster.proxy import NOT_PASSED_ON, NOT_SENT_BACK, open_session
from leftoff.cluster.ray_router import URL
from leftoff.store import points
from leftoff.store.index import connect, heartbeats

QUEUED_S = "queued_s"  # seconds of reading that a replica has before it
_URL = re.compile(r"http://[\w.:\[\]-]+:\d+")
_ATTEMPTS = 3
_MOST_AT_ONCE = 256  # requests at a replica: its own queue is what limits


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

    def __init__(self, flags: list[str], index: str) -> None:
        host = ray.util.get_node_ip_address()
        command = [sys.executable, "-m", "leftoff", "serve", *flags, "--host", host, "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._url = self._listening_url()
        self._session: aiohttp.ClientSession | None = None
        self._redis: Any = connect(index, protocol=2, socket_timeout=2) if index else None

    def _listening_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _URL.search(line):
                return match[0]
        raise RuntimeError(f"leftoff serve ended with exit code {self._process.wait()}: its log says why")

    def __del__(self) -> None:
        self._process.terminate()

    async def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> AsyncIterator[Any]:
        """Yields the status and the headers of the answer with its first bytes, then the rest."""
        self._session = self._session or open_session()
        passed = {k: v for k, v in headers.items() if k not in NOT_PASSED_ON} | {points.HEADER: "1"}
        async with self._session.request(
            method, self._url + path, data=body or None, headers=passed, allow_redirects=False
        ) as answer:
            chunks = answer.content.iter_any()
            yield answer.status, dict(answer.headers), await anext(chunks, b"")
            async for chunk in chunks:
                yield chunk

    async def check_health(self) -> None:
        """Ray calls it every few seconds, and starts another replica if it raises."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"leftoff serve has ended with exit code {code}")

    def record_routing_stats(self) -> dict[str, Any]:
        return {URL: self._url}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """From the process's own heartbeat: how long it would take to read all that waits."""
        if self._redis is None:
            return {}
        for told in await heartbeats(self._redis):
            if told.url == self._url:
                return {QUEUED_S: told.load.queued_tokens / told.rates.prefill_tokens_per_ms / 1000}
        return {}


class Ingress:
    """Takes requests of any dialect, and streams what a replica answers."""

    def __init__(self, replicas: Any) -> None:  # noqa: ANN401
        self._replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        if (request.method, request.url.path) == ("GET", "/metrics"):
            return Response(ray_link.metrics(), media_type="text/plain; version=0.0.4")
        body, headers = await request.body(), dict(request.headers)
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        attempt = 0
        while True:
            attempt += 1
            answer = self._replicas.ask.remote(request.method, path, headers, body)
            try:
                status, told, first = await anext(aiter(answer))
                break
            except (RayActorError, RayTaskError):  # nothing was answered yet: another replica may
                if attempt == _ATTEMPTS:
                    raise
        told = {name.lower(): value for name, value in told.items()}
        ray_link.begun(body, headers, told.get(points.HEADER))
        kept = {name: value for name, value in told.items() if name not in NOT_SENT_BACK}
        return StreamingResponse(_all(first, answer), status, kept)


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


class ScaleByWork:
    """Ray's autoscaling policy: as many replicas as the requests need, and as the prompts that wait to be read do."""

    def __init__(self, target_requests: float = 8.0, target_read_s: float = 5.0) -> None:
        self._target_requests = target_requests
        self._target_read_s = target_read_s

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        read_s = sum((ctx.aggregated_metrics or {}).get(QUEUED_S, {}).values())
        return max(
            math.ceil(ctx.total_num_requests / self._target_requests), math.ceil(read_s / self._target_read_s)
        ), {}


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
        max_ongoing_requests=_MOST_AT_ONCE,
        health_check_period_s=2,
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas, max_replicas=options.max_replicas, policy=policy
        ),
        request_router_config=RequestRouterConfig(
            request_router_class="leftoff.cluster.ray_router:StateRouter",
            request_router_kwargs={"index": options.index or None},
            request_routing_stats_period_s=1,
        ),
    )
    ingress = serve.deployment(
        Ingress,
        name="ingress",
        num_replicas=options.ingresses,
        max_ongoing_requests=10 * _MOST_AT_ONCE,
        ray_actor_options={"num_cpus": 0},
    )
    return ingress.bind(replicas.bind(flags, options.index))
