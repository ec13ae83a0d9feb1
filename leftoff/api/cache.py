"""A look into the cache: the tree, the last reuse reports, and a way to empty it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from leftoff.api.endpoint import Endpoint
from leftoff.api.errors import bad_field
from leftoff.api.replies import json_response
from leftoff.api.service import Service
from leftoff.api.tenant import Tenant, tenant_of
from leftoff.cache.entry import Entry, StoredPage
from leftoff.cache.store import Store
from leftoff.cache.trie import Node, Trie
from leftoff.core import Tokens

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
    text: str | None  # how it begins; null if it is somebody else's


class TreeView(Struct):
    namespace: str
    tokens: int
    bytes: int
    entries: int
    num_nodes: int
    nodes: list[NodeView]


class SlotView(Struct):
    id: int
    tokens: int
    is_busy: bool
    is_slot: bool
    is_saved: bool
    age_s: float
    namespace: str


class TierView(Struct):
    name: str
    used_bytes: int
    budget_bytes: int
    entries: int
    evictions: int


class CacheView(Struct):
    """`trees` are those in RAM; the disk has its own."""

    tiers: list[TierView]
    memory: str
    context_tokens: int
    free_tokens: int
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


class CacheApi:
    """The handlers. What they show of other tenants has no words in it."""

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
        stores = [tier.store for tier in self._service.cache.tiers]
        used_bytes, num_entries = (sum(store.used_bytes for store in stores), sum(s.num_entries for s in stores))
        self._service.cache.clear(tenant.sees)
        self._service.afterwards.forget()
        freed_bytes = used_bytes - sum(store.used_bytes for store in stores)
        return Cleared(freed_bytes, num_entries - sum(store.num_entries for store in stores))

    def _view(self, tenant: Tenant, limit: int, beginnings: list[_Beginning]) -> CacheView:
        cache = self._service.cache
        return CacheView(
            tiers=[_tier(tier.store) for tier in cache.tiers],
            memory=cache.memory.kind.value,
            context_tokens=cache.memory.num_cells,
            free_tokens=cache.memory.free_cells,
            slots=[self._slot(seq) for seq in range(cache.memory.num_sequences)],
            trees=[self._tree(name, tree, tenant, limit, beginnings) for name, tree in cache.ram.trees.items()],
        )

    def _slot(self, seq: int) -> SlotView:
        live = self._service.cache.lives[seq]
        age = _age(live.last_used) if live.last_used else 0.0
        return SlotView(seq, live.length, live.is_busy, live.is_slot, live.is_saved, age, live.namespace)

    def _tree(self, name: str, tree: Trie, tenant: Tenant, limit: int, beginnings: list[_Beginning]) -> TreeView:
        nodes = [node for node in tree.nodes() if node.is_live]
        ids = {id(node): index for index, node in enumerate(nodes)}
        views = []
        for node in nodes[:limit]:
            views.append(self._node(node, ids))
            if tenant.sees(name):
                beginnings.append(_Beginning(views[-1], np.array(node.tokens[:_PREVIEW_TOKENS])))
        entries = [entry for node in nodes for entry in node.entries]
        num_bytes = sum(entry.nbytes for entry in entries) + sum(page.nbytes for page in _pages(nodes))
        return TreeView(name, tree.num_tokens, num_bytes, len(entries), len(nodes), views)

    def _node(self, node: Node, ids: dict[int, int]) -> NodeView:
        return NodeView(
            id=ids[id(node)],
            parent=ids.get(id(node.parent)),
            start=node.start,
            end=node.end,
            age_s=_age(node.last_used),
            page_bytes=sum(page.nbytes for page in _pages([node])),
            entries=[self._entry(entry) for entry in node.entries],
            text=None,
        )

    def _entry(self, entry: Entry) -> EntryView:
        store = self._service.cache.ram.store
        return EntryView(
            entry.position,
            entry.nbytes,
            store.hits(entry),
            _age(store.last_used(entry)),
            entry.logits is not None,
        )

    def _text(self, tokens: Tokens) -> str:
        return self._service.model.vocabulary.detokenize(tokens).decode("utf-8", "replace")


def _pages(nodes: list[Node]) -> Iterator[StoredPage]:
    """Each once: nodes may share a page."""
    yield from {stretch.stored for node in nodes for stretch in node.stretches}


def _tier(store: Store) -> TierView:
    return TierView(store.name, store.used_bytes, store.budget_bytes, store.num_entries, store.num_evictions)


def _age(moment: float) -> float:
    return round(max(0.0, time.monotonic() - moment), 3)


def _count(request: Request, default: int) -> int:
    text = request.query_params.get("n", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_field("n", f"{text!r} is not a count: give a whole number, such as ?n={default}")
    return int(text)
