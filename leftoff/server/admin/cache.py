"""A look into the cache: the tree, the last reuse reports, and a way to empty it."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from leftoff.cache.resume_point import ResumePoint
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tree import Node, Tree
from leftoff.server.admin.levels import TierLevels, held_by, pages_of, tier_levels
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.http.errors import bad_field
from leftoff.server.reply.response import json_response
from leftoff.server.service import Service
from leftoff.server.tenant import Tenant, tenant_of
from leftoff.types import Tokens

_SHOWN_NODES = 1000
_SHOWN_REQUESTS = 20
_PREVIEW_TOKENS = 24


class EntryView(Struct):
    """A resume point. It was used last `age_s` seconds ago."""

    position: int
    bytes: int
    hits: int
    age_s: float
    has_logits: bool


class NodeView(Struct):
    """Tokens [start, end) of a path. `parent` is the id of the node they follow on; null at the root."""

    id: int
    parent: int | None
    start: int
    end: int
    age_s: float
    page_bytes: int
    entries: list[EntryView]
    text: str  # how it begins


class TreeView(Struct):
    namespace: str
    tokens: int
    bytes: int
    entries: int
    num_nodes: int
    nodes: list[NodeView]


class SlotView(Struct):
    """Of what another tenant has in it, only whether it is busy."""

    id: int
    is_busy: bool
    is_slot: bool
    tokens: int | UnsetType = UNSET
    is_saved: bool | UnsetType = UNSET
    age_s: float | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


class TierView(Struct):
    name: str
    used_bytes: int
    budget_bytes: int
    entries: int
    evictions: int | UnsetType


class CacheView(Struct):
    """What the asker has. `trees` are those in RAM; the disk has its own."""

    tiers: list[TierView]
    memory: str
    context_tokens: int
    free_tokens: int | UnsetType
    slots: list[SlotView]
    trees: list[TreeView]


class RequestsView(Struct):
    """The newest first."""

    requests: list[dict[str, Any]]


class Cleared(Struct):
    freed_bytes: int
    entries: int


@dataclass(frozen=True)
class _Beginning:
    """Text is made from tokens later, off the engine's thread."""

    view: NodeView
    tokens: Tokens


class CacheApi(Dialect):
    """The handlers. They show a tenant what is its own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/cache", "The tree: what is kept, its bytes, ages and hits", self.tree),
            Endpoint("DELETE", "/cache", "Forgets everything of the asker's but what is in use", self.clear),
            Endpoint("GET", "/cache/requests", "The last reuse reports (?n=20)", self.requests),
        ]

    async def tree(self, request: Request) -> Response:
        limit = _count(request, _SHOWN_NODES)
        beginnings: list[_Beginning] = []
        view = await self._service.between_steps(lambda: self._view(tenant_of(request), limit, beginnings))
        for beginning in beginnings:
            beginning.view.text = self._text(beginning.tokens)
        return json_response(view)

    async def clear(self, request: Request) -> Response:
        tenant = tenant_of(request)
        return json_response(await self._service.between_steps(lambda: self._clear(tenant)))

    async def requests(self, request: Request) -> Response:
        tenant = tenant_of(request)
        records = [record for record in self._service.journal.records if tenant.sees(record.namespace)]
        return json_response(RequestsView([record.as_dict() for record in records[: _count(request, _SHOWN_REQUESTS)]]))

    # --- on the engine's thread

    def _clear(self, tenant: Tenant) -> Cleared:
        stores = [tier.budget for tier in self._service.cache.tiers]
        used_bytes, num_entries = (sum(store.used_bytes for store in stores), sum(s.num_points for s in stores))
        self._service.cache.clear(tenant.sees)
        self._service.forget_replies(tenant.sees)
        freed_bytes = used_bytes - sum(store.used_bytes for store in stores)
        return Cleared(freed_bytes, num_entries - sum(store.num_points for store in stores))

    def _view(self, tenant: Tenant, limit: int, beginnings: list[_Beginning]) -> CacheView:
        cache = self._service.cache
        own = [(name, tree) for name, tree in cache.ram.trees.items() if tenant.sees(name)]
        return CacheView(
            tiers=[_tier(tier_levels(tier, tenant)) for tier in cache.tiers],
            memory=cache.memory.kind.value,
            context_tokens=cache.memory.num_cells,
            free_tokens=cache.memory.free_cells if tenant.is_alone else UNSET,
            slots=[_slot(sequence, tenant) for sequence in cache.sequences],
            trees=[self._tree(name, tree, limit, beginnings) for name, tree in own],
        )

    def _tree(self, name: str, tree: Tree, limit: int, beginnings: list[_Beginning]) -> TreeView:
        nodes = [node for node in tree.nodes() if node.is_live]
        ids = {id(node): index for index, node in enumerate(nodes)}
        views = [self._node(node, ids) for node in nodes[:limit]]
        for node, view in zip(nodes, views, strict=False):
            beginnings.append(_Beginning(view, np.array(node.tokens[:_PREVIEW_TOKENS])))
        held = held_by(nodes)
        return TreeView(name, tree.num_tokens, held.num_bytes, held.num_entries, len(nodes), views)

    def _node(self, node: Node, ids: dict[int, int]) -> NodeView:
        return NodeView(
            id=ids[id(node)],
            parent=ids.get(id(node.parent)),
            start=node.start,
            end=node.end,
            age_s=_age(node.last_used),
            page_bytes=sum(page.nbytes for page in pages_of([node])),
            entries=[self._entry(point) for point in node.points],
            text="",
        )

    def _entry(self, point: ResumePoint) -> EntryView:
        store = self._service.cache.ram.budget
        return EntryView(
            point.position,
            point.nbytes,
            store.hits(point),
            _age(store.last_used(point)),
            point.logits is not None,
        )

    def _text(self, tokens: Tokens) -> str:
        return self._service.model.vocabulary.detokenize(tokens).decode("utf-8", "replace")


def _slot(sequence: EngineSequence, tenant: Tenant) -> SlotView:
    view = SlotView(sequence.seq, sequence.is_busy, sequence.is_slot)
    if tenant.is_alone or tenant.sees(sequence.namespace):
        view.tokens, view.is_saved, view.namespace = sequence.length, sequence.is_saved, sequence.namespace
        view.age_s = _age(sequence.last_used) if sequence.last_used else 0.0
    return view


def _tier(levels: TierLevels) -> TierView:
    evictions = UNSET if levels.num_evictions is None else levels.num_evictions
    return TierView(levels.name, levels.used_bytes, levels.budget_bytes, levels.num_entries, evictions)


def _age(moment: float) -> float:
    return round(max(0.0, time.monotonic() - moment), 3)


def _count(request: Request, default: int) -> int:
    text = request.query_params.get("n", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_field("n", f"{text!r} is not a count: give a whole number, such as ?n={default}")
    return int(text)
