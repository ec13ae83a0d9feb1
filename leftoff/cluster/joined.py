"""Requests that concern every replica: each of them is asked, and their answers are joined to one.

    GET    /v1/models, /models, /api/tags, /api/ps    the models of all, each once
    GET    /slots                                     the slots of all; each says its replica
    GET    /props                                     those of one, with the slots of all; and by replica
    GET    /cache                                     by replica
    DELETE /cache                                     by replica, and in sum; an error if one has not deleted

A replica that has refused or failed stands there with its error. With the header `x-leftoff-replica` a request goes to
the replica of that id alone, as all other requests do.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from leftoff.cluster.replica_view import ReplicaView

_ASK_S = 10.0
_DELETE_S = 90.0  # a server waits for its disk and the store
_FAILED = 502
_PROBLEMS = (aiohttp.ClientError, OSError, TimeoutError, ValueError)

_NEAR = {"sleeping": 1, "loading": 2, "loaded": 3}  # of the states of models, others are further from answering

Headers = Collection[tuple[str, str]]
Join = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Told:
    """The answer of one replica."""

    id: str
    status: int
    content: Any

    @property
    def is_ok(self) -> bool:
        return self.status < 400


async def join_all(
    session: aiohttp.ClientSession, views: Collection[ReplicaView], request: Request, headers: Headers
) -> Response:
    """The joined answer of all servers to a request that `is_joined`, by the ids of their first replicas."""
    servers = {view.told.url: view for view in sorted(views, key=lambda view: -view.told.order)}
    told = await asyncio.gather(*(_ask(session, view, request, headers) for view in servers.values()))
    told.sort(key=lambda each: each.id)
    if not any(each.is_ok for each in told):  # such as 401, which all of them say
        return JSONResponse(told[0].content, told[0].status)
    if request.method == "DELETE":
        return _deleted(told)
    return JSONResponse(_JOINS[request.url.path]({each.id: each.content for each in told if each.is_ok}))


def is_joined(request: Request) -> bool:
    """Whether all servers are to answer it. Those that show the properties of a model open it."""
    path = request.url.path
    if path == "/props" and request.query_params.get("model"):
        return False
    return path in _JOINS if request.method == "GET" else (request.method, path) == ("DELETE", "/cache")


async def _ask(session: aiohttp.ClientSession, view: ReplicaView, request: Request, headers: Headers) -> Told:
    url = f"{view.told.url.rstrip('/')}{request.url.path}?{request.url.query}"
    timeout = aiohttp.ClientTimeout(total=_DELETE_S if request.method == "DELETE" else _ASK_S)
    try:
        async with session.request(request.method, url, headers=headers, timeout=timeout) as answer:
            return Told(view.id, answer.status, msgspec.json.decode(await answer.read()))
    except _PROBLEMS as error:
        message = f"the replica at {view.told.url} did not answer: {str(error) or type(error).__name__}"
        return Told(view.id, _FAILED, {"error": {"message": message, "code": "replica_failed"}})


def _deleted(told: list[Told]) -> Response:
    done = [each.content for each in told if each.is_ok]
    content: dict[str, Any] = {
        "freed_bytes": sum(each["freed_bytes"] for each in done),
        "entries": sum(each["entries"] for each in done),
        "replicas": {each.id: each.content for each in told},
    }
    if len(done) < len(told):
        message = f"{len(told) - len(done)} of {len(told)} replicas have not deleted: send the request again"
        content["error"] = {"message": message, "type": "server_error", "param": None, "code": "not_deleted"}
    return JSONResponse(content, 200 if len(done) == len(told) else _FAILED)


# --- how answers are joined, which come by the ids of their replicas


def _models(answers: Mapping[str, Any], lists: str, name: str) -> Any:  # noqa: ANN401
    """Each once: as it is where it is loaded, or else where most is known of it."""
    models: dict[str, Any] = {}
    for model in (model for answer in answers.values() for model in answer[lists]):
        models[model[name]] = max(models.get(model[name], model), model, key=_nearness)
    return {**next(iter(answers.values())), lists: [*models.values()]}


def _nearness(model: Mapping[str, Any]) -> tuple[int, int]:
    return _NEAR.get(model.get("status", {}).get("value"), 0), len(model)


def _slots(answers: Mapping[str, Any]) -> Any:  # noqa: ANN401
    return [{**slot, "replica": replica} for replica, slots in answers.items() for slot in slots]


def _props(answers: Mapping[str, Any]) -> Any:  # noqa: ANN401
    total = sum(each["total_slots"] for each in answers.values())
    return {**next(iter(answers.values())), "total_slots": total, "replicas": answers}


_JOINS: dict[str, Join] = {
    "/v1/models": partial(_models, lists="data", name="id"),
    "/models": partial(_models, lists="data", name="id"),
    "/api/tags": partial(_models, lists="models", name="name"),
    "/api/ps": partial(_models, lists="models", name="name"),
    "/slots": _slots,
    "/props": _props,
    "/cache": lambda answers: {"replicas": answers},
}
