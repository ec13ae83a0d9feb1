"""/cache: the tree, the last reuse reports, and deletion. A tenant sees and deletes only what is its own."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from leftoff.cache.blob_tier import BlobTier
from leftoff.cache.node import Node, ResumePoint
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.cache.tree import Tree
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.reply.response import json_response
from leftoff.server.tenant import Tenant, tenant_of
from leftoff.types import Tokens

_SHOWN_NODES = 1000
_SHOWN_REQUESTS = 20
_PREVIEW_TOKENS = 24


class NodeView(Struct):
    """Tokens [start, end) of a path in the tree. `parent` is the id of the node before them; null at the root."""

    id: int
    parent: int | None
    start: int
    end: int
    age_s: float
    page_bytes: int
    entries: list[dict[str, Any]]
    text: str  # of the first tokens


class SlotView(Struct):
    """A sequence of the engine. If it is another tenant's, only whether it is busy."""

    id: int
    is_busy: bool
    tokens: int | UnsetType = UNSET
    is_saved: bool | UnsetType = UNSET
    age_s: float | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


class TierView(Struct):
    """How full a tier is. Where tenants share it, each sees its own part, and no evictions.

    Of a store that machines share it is the part that this server knows of; `waiting` is not written there yet.
    Below RAM, `written_bytes` were written since the start, and at most `most_bytes` were kept at one time.
    """

    name: str
    used_bytes: int
    budget_bytes: int
    entries: int
    evictions: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    written_bytes: int | UnsetType = UNSET
    most_bytes: int | UnsetType = UNSET


@dataclass(frozen=True)
class _Beginning:
    """The first tokens of a node, to be detokenized off the engine's thread."""

    view: NodeView
    tokens: Tokens


class CacheApi(Dialect):
    """Show and clear the cache."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/cache", "The tree of cached prefixes, with bytes, ages and hits", self.tree),
            Endpoint("DELETE", "/cache", "Delete what the tenant has in the cache (?salt=one)", self.clear),
            Endpoint("GET", "/cache/requests", "The last reuse reports (?n=20)", self.requests),
            Endpoint("GET", "/cache/requests/{id}", "One of them, message by message", self.request),
        ]

    async def tree(self, request: Request) -> Response:
        limit = _count(request, _SHOWN_NODES)
        beginnings: list[_Beginning] = []
        view = await self._host.between_steps(lambda: self._view(tenant_of(request), limit, beginnings))
        for beginning in beginnings:
            beginning.view.text = self._host.model.vocabulary.text(beginning.tokens)
        return json_response(view)

    async def clear(self, request: Request) -> Response:
        tenant, salt = tenant_of(request), request.query_params.get("salt")
        own = partial(eq, tenant.namespace(salt)) if salt else tenant.sees
        return json_response(await self._host.between_steps(lambda: self._clear(own)))

    async def requests(self, request: Request) -> Response:
        tenant = tenant_of(request)
        limit = _count(request, _SHOWN_REQUESTS)
        records = [record for record in self._hosts.log.records if tenant.sees(record.namespace)]  # newest first
        return json_response({"requests": [record.as_dict() for record in records[:limit]]})

    async def request(self, request: Request) -> Response:
        tenant, wanted = tenant_of(request), request.path_params["id"]
        for record in self._hosts.log.records:
            if record.id == wanted and tenant.sees(record.namespace):
                return json_response(record.in_detail())
        kept = self._hosts.log.size
        raise ApiError(404, f"there is no report {wanted!r}: the last {kept} are kept (--reports)", code="not_found")

    # --- on the engine's thread

    def _clear(self, is_meant: Callable[[str], bool]) -> dict[str, int]:
        budgets = [tier.budget for tier in self._host.cache.tiers]
        used_bytes = sum(budget.used_bytes for budget in budgets)
        num_points = sum(budget.num_points for budget in budgets)
        self._host.forget(is_meant)
        return {
            "freed_bytes": used_bytes - sum(budget.used_bytes for budget in budgets),
            "entries": num_points - sum(budget.num_points for budget in budgets),
        }

    def _view(self, tenant: Tenant, limit: int, beginnings: list[_Beginning]) -> dict[str, Any]:
        """The cache as one tenant sees it. `trees` are those in RAM; the disk has its own."""
        cache = self._host.cache
        own = [(name, tree) for name, tree in cache.ram.trees.items() if tenant.sees(name)]
        free_tokens = {"free_tokens": cache.memory.free_cells} if tenant.is_alone else {}
        return {
            "tiers": [tier_view(tier, tenant) for tier in cache.tiers],
            "memory": cache.memory.kind.value,
            "context_tokens": cache.memory.num_cells,
            **free_tokens,
            "slots": [slot_view(sequence, tenant) for sequence in cache.sequences],
            "trees": [self._tree(name, tree, limit, beginnings) for name, tree in own],
        }

    def _tree(self, name: str, tree: Tree, limit: int, beginnings: list[_Beginning]) -> dict[str, Any]:
        nodes = [node for node in tree.nodes() if node.is_live]
        ids = {id(node): index for index, node in enumerate(nodes)}
        views = [self._node(node, ids) for node in nodes[:limit]]
        for node, view in zip(nodes, views, strict=False):
            beginnings.append(_Beginning(view, np.array(node.tokens[:_PREVIEW_TOKENS])))
        held = _held_by(nodes)
        return {
            "namespace": name,
            "tokens": tree.num_tokens,
            "bytes": held.num_bytes,
            "entries": held.num_points,
            "num_nodes": len(nodes),
            "nodes": views,
        }

    def _node(self, node: Node, ids: dict[int, int]) -> NodeView:
        return NodeView(
            id=ids[id(node)],
            parent=ids.get(id(node.parent)),
            start=node.start,
            end=node.end,
            age_s=_age(node.last_used),
            page_bytes=_page_bytes([node]),
            entries=[self._entry(point) for point in node.points],
            text="",
        )

    def _entry(self, point: ResumePoint) -> dict[str, Any]:
        ranking = self._host.cache.ram.budget.ranking
        return {
            "position": point.position,
            "bytes": point.total_bytes,
            "hits": ranking.hits(point),
            "age_s": _age(ranking.last_used(point)),
            "has_logits": point.logits is not None,
        }


def slot_view(sequence: EngineSequence, tenant: Tenant, *, with_age: bool = True) -> SlotView:
    """A sequence as a tenant sees it. Called on the engine's thread. An age changes with every look."""
    view = SlotView(sequence.seq, sequence.is_busy)
    if tenant.is_alone or tenant.sees(sequence.namespace):
        view.tokens, view.is_saved, view.namespace = sequence.length, sequence.is_saved, sequence.namespace
        if with_age:
            view.age_s = _age(sequence.last_used) if sequence.last_used else 0.0
    return view


def tier_view(tier: Tier, tenant: Tenant) -> TierView:
    """How full a tier is, for a tenant. Called on the engine's thread."""
    budget = tier.budget
    if tenant.is_alone:
        blobs = tier.blobs if isinstance(tier, BlobTier) else None
        waiting = blobs.num_waiting if blobs is not None and blobs.shared is not None else UNSET
        written = (blobs.written_bytes, budget.most_bytes) if blobs is not None else ()
        counts = (budget.used_bytes, budget.budget_bytes, budget.num_points, budget.num_evictions, waiting)
        return TierView(budget.name, *counts, *written)
    own = [_held_by(tree.nodes()) for namespace, tree in tier.trees.items() if tenant.sees(namespace)]
    num_bytes, num_points = sum(held.num_bytes for held in own), sum(held.num_points for held in own)
    return TierView(budget.name, num_bytes, budget.budget_bytes, num_points)


@dataclass(frozen=True)
class _Held:
    """Bytes and resume points of some nodes of a tree."""

    num_bytes: int
    num_points: int


def _held_by(nodes: Iterable[Node]) -> _Held:
    nodes = list(nodes)
    points = [point for node in nodes for point in node.points]
    windows = {page for point in points for page in point.window}
    shared_bytes = _page_bytes(nodes) + sum(page.nbytes for page in windows)
    return _Held(sum(point.nbytes for point in points) + shared_bytes, len(points))


def _page_bytes(nodes: Iterable[Node]) -> int:
    """Each page counts once: nodes may share one."""
    return sum(page.nbytes for page in {stretch.stored for node in nodes for stretch in node.stretches})


def _age(moment: float) -> float:
    return round(max(0.0, time.monotonic() - moment), 3)


def _count(request: Request, default: int) -> int:
    text = request.query_params.get("n", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_field("n", f"{text!r} is not a count: give a whole number, such as ?n={default}")
    return int(text)
