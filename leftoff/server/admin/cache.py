"""/cache: the tree, the last reuse reports, and deletion. A tenant sees and deletes only what is its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from leftoff.adapters import without_adapters
from leftoff.cache.blob_tier import BlobTier
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.cache.tree import Tree
from leftoff.cache.tree_copy import NodeCopy, PointCopy, TreeCopy, copy_tree
from leftoff.host.host import ModelHost
from leftoff.server.admin.deletion import Deletion
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.reply.joined import Answer, shown
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
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
    model: str | UnsetType = UNSET


class TierView(Struct):
    """How full a tier is. Where tenants share it, each sees its own part, and no evictions.

    Of a store that machines share it is the part that this server knows of. Below RAM, `waiting` pages and snapshots
    are not written yet, `written_bytes` were written since the start, and at most `most_bytes` were kept at one time.
    """

    name: str
    used_bytes: int
    budget_bytes: int
    entries: int
    evictions: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    written_bytes: int | UnsetType = UNSET
    most_bytes: int | UnsetType = UNSET


class CacheApi(Dialect):
    """Show and clear the cache."""

    def __init__(self, hosts: Hosts, forget_others: Callable[[Callable[[str], bool]], None]) -> None:
        """`forget_others` forgets what other routes keep for the namespaces that are meant."""
        super().__init__(hosts)
        self._forget_others = forget_others

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/cache", "The tree of cached prefixes, with bytes, ages and hits", self.tree),
            Endpoint("DELETE", "/cache", "Delete what the tenant has in the cache (?salt=one)", self.clear),
            Endpoint("GET", "/cache/clients", "Who asked, and what was spared each conversation (?n=20)", self.clients),
            Endpoint("GET", "/cache/requests", "The last reuse reports (?n=20)", self.requests),
            Endpoint("GET", "/cache/requests/{id}", "One of them, message by message", self.request),
        ]

    async def tree(self, request: Request) -> Response:
        tenant, limit = tenant_of(request), _count(request, _SHOWN_NODES)

        async def show(host: ModelHost) -> Answer:
            state, copies = await host.between_steps(lambda: (_state(host, tenant), _copies(host, tenant, limit)))
            text = host.model.vocabulary.text
            return await aside(host, lambda: state | {"trees": [_tree(copy, text) for copy in copies]})

        return json_response(await shown(self._hosts, request, show))

    async def clear(self, request: Request) -> Response:
        tenant, salt, model = tenant_of(request), request.query_params.get("salt"), request.query_params.get("model")
        if salt == "":
            raise bad_field("salt", "is empty: leave it out to delete everything, or give the cache_salt that is meant")
        namespace = tenant.namespace(salt)
        own = (lambda each: without_adapters(each) == namespace) if salt else tenant.sees
        deletion = Deletion(self._hosts, own)
        await deletion.of_models(model)
        if not model:
            self._forget_others(own)
            self._hosts.known_files.forget()
            if (web_files := request.app.state.web_files) is not None:
                web_files.forget(tenant.name)
            await deletion.of_no_model()
        return json_response(await deletion.end())

    async def clients(self, request: Request) -> Response:
        limit = _count(request, _SHOWN_REQUESTS)
        log = self._hosts.log
        return json_response(
            {"started_at": log.started_at, "clients": log.callers.shown(tenant_of(request).name, limit)}
        )

    async def requests(self, request: Request) -> Response:
        tenant = tenant_of(request)
        limit = _count(request, _SHOWN_REQUESTS)
        records = [record for record in self._hosts.log.records if tenant.sees(record.namespace)]  # newest first
        if model := request.query_params.get("model"):
            name = self._hosts.opened(model)[0].name
            records = [record for record in records if record.model == name]
        return json_response({"requests": [record.as_dict() for record in records[:limit]]})

    async def request(self, request: Request) -> Response:
        tenant, wanted = tenant_of(request), request.path_params["id"]
        for record in self._hosts.log.records:
            if record.id == wanted and tenant.sees(record.namespace):
                return json_response(record.in_detail())
        kept = self._hosts.log.size
        raise ApiError(404, f"there is no report {wanted!r}: the last {kept} are kept (--reports)", code="not_found")


# --- on the engine's thread


def _state(host: ModelHost, tenant: Tenant) -> Answer:
    """The cache as one tenant sees it, without trees."""
    cache = host.cache
    free_tokens = {"free_tokens": cache.memory.free_cells} if tenant.is_alone else {}
    return {
        "tiers": [tier_view(tier, tenant) for tier in cache.tiers],
        "memory": cache.memory.kind.value,
        "context_tokens": cache.memory.num_cells,
        **free_tokens,
        "slots": [slot_view(sequence, tenant) for sequence in cache.sequences],
    }


def _copies(host: ModelHost, tenant: Tenant, limit: int) -> list["_RamTree"]:
    """The trees in RAM; the disk has its own."""
    ram = host.cache.ram
    own = [name for name in ram.trees if tenant.sees(name)]
    return [_RamTree(copy_tree(ram, name, limit), _held_by(ram.trees[name])) for name in own]


# --- aside


def _tree(tree: "_RamTree", text: Callable[[Tokens], str]) -> Answer:
    nodes = [node for root in tree.copy.roots for node in root.nodes()]
    ids = {id(node): number for number, node in enumerate(nodes)}
    parents = {id(child): ids[id(node)] for node in nodes for child in node.children}
    return {
        "namespace": tree.copy.namespace,
        "tokens": tree.held.num_tokens,
        "bytes": tree.held.num_bytes,
        "entries": tree.held.num_points,
        "num_nodes": tree.held.num_nodes,
        "nodes": [_node(node, ids[id(node)], parents.get(id(node)), text) for node in nodes],
    }


def _node(node: NodeCopy, number: int, parent: int | None, text: Callable[[Tokens], str]) -> NodeView:
    return NodeView(
        id=number,
        parent=parent,
        start=node.start,
        end=node.end,
        age_s=age_of(node.last_used),
        page_bytes=sum({(page.page_start, page.page_end): page.nbytes for page in node.pages}.values()),
        entries=[_entry(point) for point in node.points],
        text=text(node.tokens[:_PREVIEW_TOKENS]),
    )


def _entry(point: PointCopy) -> dict[str, Any]:
    return {
        "position": point.position,
        "bytes": point.nbytes,
        "hits": point.hits,
        "age_s": age_of(point.last_used),
        "has_logits": point.has_logits,
    }


def slot_view(sequence: EngineSequence, tenant: Tenant, *, with_age: bool = True) -> SlotView:
    """A sequence as a tenant sees it. Called on the engine's thread.

    `with_age` adds for how long it was not used, which is another time in every answer.
    """
    view = SlotView(sequence.seq, sequence.is_busy)
    if tenant.is_alone or tenant.sees(sequence.namespace):
        view.tokens, view.is_saved, view.namespace = sequence.length, sequence.is_saved, sequence.namespace
        if with_age:
            view.age_s = age_of(sequence.last_used) if sequence.last_used else 0.0
    return view


def tier_view(tier: Tier, tenant: Tenant) -> TierView:
    """How full a tier is, for a tenant. Called on the engine's thread."""
    budget = tier.budget
    if not tenant.is_alone:
        own = [_held_by(tree) for namespace, tree in tier.trees.items() if tenant.sees(namespace)]
        num_bytes, num_points = sum(held.num_bytes for held in own), sum(held.num_points for held in own)
        return TierView(budget.name, num_bytes, budget.budget_bytes, num_points)
    view = TierView(budget.name, budget.used_bytes, budget.budget_bytes, budget.num_points, budget.num_evictions)
    if isinstance(tier, BlobTier):
        view.written_bytes, view.most_bytes = tier.blobs.written_bytes, budget.most_bytes
        view.waiting = tier.blobs.num_waiting
    return view


@dataclass(frozen=True)
class _Held:
    """The size of a tree. Pages that nodes or points share count once."""

    num_bytes: int
    num_points: int
    num_nodes: int
    num_tokens: int


@dataclass(frozen=True)
class _RamTree:
    """The nodes that are shown, and what all of them hold."""

    copy: TreeCopy
    held: _Held


def _held_by(tree: Tree) -> _Held:
    nodes = [node for node in tree.nodes() if node.is_live]
    points = [point for node in nodes for point in node.points]
    pages = {stretch.stored for node in nodes for stretch in node.stretches}
    window_pages = {page for point in points for page in point.window}
    num_bytes = sum(sum(entry.nbytes for entry in entries) for entries in (points, pages, window_pages))
    return _Held(num_bytes, len(points), len(nodes), tree.num_tokens)


def age_of(moment: float) -> float:
    """The seconds since a moment of the monotonic clock, as views show them."""
    return round(max(0.0, time.monotonic() - moment), 3)


def _count(request: Request, default: int) -> int:
    text = request.query_params.get("n", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_field("n", f"{text!r} is not a count: give a whole number, such as ?n={default}")
    return int(text)
