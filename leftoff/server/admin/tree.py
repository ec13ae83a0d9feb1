"""GET /cache/tree: the prefixes that slots, RAM and disk hold, as one tree; and to pin or drop a path of it.

The engine's thread only copies references, of the nodes that were used last. Merging, hashing and text are done aside.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from leftoff.cache.cache import Cache
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tree_copy import NodeCopy, TreeCopy, copy_tree
from leftoff.host.host import ModelHost
from leftoff.server.admin.cache import age_of
from leftoff.server.admin.merged_tree import Merged, PointView, merge
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.joined import Answer, shown
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
from leftoff.server.tenant import Tenant, tenant_of
from leftoff.types import Tokens

TextOf = Callable[[Tokens], str]

_MAX_NODES = 1000  # of a tree, those that were used last
_PREVIEW_TOKENS = 48
_LEAD_TOKENS = 16
_MAX_SEARCHED = 1 << 20  # tokens
_CUT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class MergedNodeView(Struct):
    """Tokens [start, end) after those of `parent`, and what is held of them. The id is a hash of the whole path."""

    id: str
    parent: str | None
    start: int
    end: int
    age_s: float
    slots: list[int]
    ram_tokens: int
    ram_bytes: int
    disk_tokens: int
    disk_bytes: int
    store_tokens: int
    store_bytes: int
    points: list[PointView]
    lead: str  # the end of the nodes before, from the beginning of the line that its text goes on with
    text: str
    is_found: bool


class TreeView(Struct):
    """The tree of one namespace: all of it, or the nodes that were used last."""

    namespace: str
    is_whole: bool
    nodes: list[MergedNodeView]
    model: str | UnsetType = UNSET


class TreeApi(Dialect):
    """Show the tree, and change it by hand. A tenant sees and changes only its own."""

    def endpoints(self) -> list[Endpoint]:
        one = "/cache/tree/{id}"
        return [
            Endpoint(
                "GET", "/cache/tree", "What slots, RAM and disk hold, as one tree (?q=text marks nodes)", self.tree
            ),
            Endpoint("DELETE", one, "Drop a path of the tree and all that follows it", self.drop),
            Endpoint("POST", f"{one}/pin", "Protect a path of the tree from eviction", self.pin),
            Endpoint("DELETE", f"{one}/pin", "Protect it no longer", self.unpin),
        ]

    async def tree(self, request: Request) -> Response:
        tenant, wanted = tenant_of(request), request.query_params.get("q", "").strip().lower()

        async def show(host: ModelHost) -> Answer:
            copied, text = await _copied(host, tenant), host.model.vocabulary.text
            return {"trees": await aside(host, lambda: [_view(each, wanted, text) for each in copied])}

        return json_response(await shown(self._hosts, request, show))

    async def drop(self, request: Request) -> Response:
        places = await self._find(request)
        return json_response({"freed_bytes": sum([await each.host.between_steps(each.drop) for each in places])})

    async def pin(self, request: Request) -> Response:
        return await self._pin(request, is_pinned=True)

    async def unpin(self, request: Request) -> Response:
        return await self._pin(request, is_pinned=False)

    async def _pin(self, request: Request, *, is_pinned: bool) -> Response:
        places = await self._find(request)
        nbytes = sum([await each.host.between_steps(partial(each.pin, is_pinned=is_pinned)) for each in places])
        end = max(each.resume_end for each in places)
        if not nbytes:
            raise ApiError(
                409, f"nothing can resume at token {end} of this path: pin one that has a mark", code="no_point"
            )
        return json_response({"tokens": end, "bytes": nbytes})

    async def _find(self, request: Request) -> list["_Place"]:
        """The models that hold a node, by its id. It is looked for among those that `tree` shows."""
        wanted, tenant = request.path_params["id"], tenant_of(request)

        async def find(host: ModelHost) -> _Place | None:
            copied = await _copied(host, tenant)
            nodes = (_Place(host, each.namespace, node) for each in copied for node in merge(each.roots))
            return await aside(host, lambda: next((place for place in nodes if place.node.id == wanted), None))

        found = await asyncio.gather(*map(find, self._hosts.opened(request.query_params.get("model"))))
        places = [place for place in found if place is not None]
        if not places:
            raise ApiError(404, f"there is no {wanted!r} in the tree any more: read it again", code="not_found")
        return places


@dataclass(frozen=True)
class _Place:
    """A node in the tree of a model."""

    host: ModelHost
    namespace: str
    node: Merged

    @property
    def resume_end(self) -> int:
        return max((point.position for point in self.node.points), default=self.node.end)

    # --- on the engine's thread

    def drop(self) -> int:
        drafter = self.host.scheduler.drafter
        if drafter is not None:
            drafter.forget(lambda name: name == self.namespace)
        return self.host.cache.drop(self.node.path, self.node.start, self.namespace)

    def pin(self, *, is_pinned: bool) -> int:
        return self.host.cache.pin(self.node.path[: self.resume_end], self.namespace, is_pinned=is_pinned)


async def _copied(host: ModelHost, tenant: Tenant) -> list[TreeCopy]:
    return await host.between_steps(lambda: _copy_all(host.cache, tenant))


# --- on the engine's thread


def _copy_all(cache: Cache, tenant: Tenant) -> list[TreeCopy]:
    trees = [copy_tree(tier, name, _MAX_NODES) for tier in cache.tiers for name in tier.trees if tenant.sees(name)]
    trees += [_sequence_copy(each) for each in cache.sequences if tenant.sees(each.namespace) and not each.is_empty]
    names = dict.fromkeys(tree.namespace for tree in trees if tree.roots)
    return [_side_by_side([tree for tree in trees if tree.namespace == name]) for name in names]


def _sequence_copy(sequence: EngineSequence) -> TreeCopy:
    last_used = time.monotonic() if sequence.is_busy else sequence.last_used
    return TreeCopy(sequence.namespace, [NodeCopy(f"slot {sequence.seq}", 0, sequence.tokens.tobytes(), last_used)])


def _side_by_side(trees: Sequence[TreeCopy]) -> TreeCopy:
    """The trees of one namespace."""
    roots = [root for tree in trees for root in tree.roots]
    return TreeCopy(trees[0].namespace, roots, all(tree.is_whole for tree in trees))


# --- aside


def _view(copied: TreeCopy, wanted: str, text: TextOf) -> TreeView:
    nodes = [*itertools.islice(merge(copied.roots), 2 * _MAX_NODES)]
    budget = _MAX_SEARCHED
    views = []
    for node in nodes:
        views.append(_node(node, bool(wanted) and _ends_in(node, wanted, budget, text), text))
        budget -= min(budget, node.end - node.start)
    return TreeView(copied.namespace, copied.is_whole, views)


def _ends_in(node: Merged, wanted: str, max_tokens: int, text: TextOf) -> bool:
    """Whether the wanted text occurs and ends in a node; it may begin in the nodes before.

    No more than `max_tokens` of the node are looked at.
    """
    before = node.before(len(wanted.encode()))  # a token is a byte at least
    own = np.frombuffer(node.key, np.int32)[:max_tokens]
    num_known = len(text(before).lower().rstrip(_CUT_CHARACTER))
    return wanted in text(np.concatenate((before, own))).lower()[max(0, num_known - len(wanted) + 1) :]


def _node(node: Merged, is_found: bool, text: TextOf) -> MergedNodeView:
    ram, disk, store = map(node.held, ("RAM", "disk", "store"))
    return MergedNodeView(
        id=node.id,
        parent=node.parent.id if node.parent is not None else None,
        start=node.start,
        end=node.end,
        age_s=age_of(max(copy.last_used for copy in node.copies)),
        slots=[int(copy.source.split()[1]) for copy in node.copies if copy.source.startswith("slot")],
        ram_tokens=ram.num_tokens,
        ram_bytes=ram.num_bytes,
        disk_tokens=disk.num_tokens,
        disk_bytes=disk.num_bytes,
        store_tokens=store.num_tokens,
        store_bytes=store.num_bytes,
        points=sorted(node.points, key=lambda point: (point.position, point.tier)),
        lead=text(node.before(_LEAD_TOKENS)).rpartition("\n")[2],
        text=text(np.frombuffer(node.key, np.int32)[:_PREVIEW_TOKENS]),
        is_found=is_found,
    )
