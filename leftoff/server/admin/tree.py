"""GET /cache/tree: the prefixes that slots, RAM and disk hold, as one tree; and to pin or drop a path of it.

The engine's thread only copies references, of the nodes that were used last. Merging, hashing and text are done aside.
"""

import itertools
import time
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tree_copy import NodeCopy, TreeCopy, copy_tree
from leftoff.server.admin.merged_tree import Merged, PointView, merge
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.response import json_response
from leftoff.server.request.aside import aside
from leftoff.server.tenant import Tenant, tenant_of
from leftoff.types import Tokens

_MAX_NODES = 1000  # of a tree, those that were used last
_PREVIEW_TOKENS = 48
_MAX_SEARCHED = 1 << 20  # tokens


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
    text: str
    is_found: bool


class TreeView(Struct):
    """The tree of one namespace: all of it, or the nodes that were used last."""

    namespace: str
    is_whole: bool
    nodes: list[MergedNodeView]


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
        wanted = request.query_params.get("q", "").strip().lower()
        copied = await self._copied(tenant_of(request))
        return json_response({"trees": await aside(self._host, lambda: [self._view(each, wanted) for each in copied])})

    async def drop(self, request: Request) -> Response:
        namespace, node = await self._find(request)
        freed = await self._host.between_steps(lambda: self._drop(node.path, node.start, namespace))
        return json_response({"freed_bytes": freed})

    def _drop(self, tokens: Tokens, start: int, namespace: str) -> int:
        """Called on the engine's thread."""
        drafter = self._host.scheduler.drafter
        if drafter is not None:
            drafter.forget(lambda name: name == namespace)
        return self._host.cache.drop(tokens, start, namespace)

    async def pin(self, request: Request) -> Response:
        return await self._pin(request, is_pinned=True)

    async def unpin(self, request: Request) -> Response:
        return await self._pin(request, is_pinned=False)

    async def _pin(self, request: Request, *, is_pinned: bool) -> Response:
        namespace, node = await self._find(request)
        end = max((point.position for point in node.points), default=node.end)
        tokens, cache = node.path[:end], self._host.cache
        nbytes = await self._host.between_steps(lambda: cache.pin(tokens, namespace, is_pinned=is_pinned))
        if not nbytes:
            raise ApiError(
                409, f"nothing can resume at token {end} of this path: pin one that has a mark", code="no_point"
            )
        return json_response({"tokens": end, "bytes": nbytes})

    async def _find(self, request: Request) -> tuple[str, Merged]:
        """A node by its id, with its namespace. It is looked for among those that `tree` shows."""
        wanted = request.path_params["id"]
        copied = await self._copied(tenant_of(request))

        def find() -> tuple[str, Merged] | None:
            nodes = ((each.namespace, node) for each in copied for node in merge(each.roots))
            return next(((name, node) for name, node in nodes if node.id == wanted), None)

        found = await aside(self._host, find)
        if found is None:
            raise ApiError(404, f"there is no {wanted!r} in the tree any more: read it again", code="not_found")
        return found

    async def _copied(self, tenant: Tenant) -> list[TreeCopy]:
        return await self._host.between_steps(lambda: self._copy_all(tenant))

    # --- on the engine's thread

    def _copy_all(self, tenant: Tenant) -> list[TreeCopy]:
        cache = self._host.cache
        trees = [copy_tree(tier, name, _MAX_NODES) for tier in cache.tiers for name in tier.trees if tenant.sees(name)]
        trees += [_sequence_copy(each) for each in cache.sequences if tenant.sees(each.namespace) and not each.is_empty]
        names = dict.fromkeys(tree.namespace for tree in trees if tree.roots)
        return [_joined([tree for tree in trees if tree.namespace == name]) for name in names]

    # --- aside

    def _view(self, copied: TreeCopy, wanted: str) -> TreeView:
        nodes = [*itertools.islice(merge(copied.roots), 2 * _MAX_NODES)]
        text, budget = self._host.model.vocabulary.text, _MAX_SEARCHED
        views = []
        for node in nodes:
            tokens = np.frombuffer(node.key, np.int32)[:budget]
            budget -= int(tokens.size) if wanted else 0
            views.append(self._node(node, bool(wanted) and wanted in text(tokens).lower()))
        return TreeView(copied.namespace, copied.is_whole, views)

    def _node(self, node: Merged, is_found: bool) -> MergedNodeView:
        ram_tokens, ram_bytes = node.held("RAM")
        disk_tokens, disk_bytes = node.held("disk")
        store_tokens, store_bytes = node.held("store")
        points = node.points
        of = {tier: sum(point.bytes for point in points if point.tier == tier) for tier in ("RAM", "disk", "store")}
        return MergedNodeView(
            id=node.id,
            parent=node.parent.id if node.parent is not None else None,
            start=node.start,
            end=node.end,
            age_s=round(max(0.0, time.monotonic() - max(copy.last_used for copy in node.copies)), 1),
            slots=[int(copy.source.split()[1]) for copy in node.copies if copy.source.startswith("slot")],
            ram_tokens=ram_tokens,
            ram_bytes=round(ram_bytes) + of["RAM"],
            disk_tokens=disk_tokens,
            disk_bytes=round(disk_bytes) + of["disk"],
            store_tokens=store_tokens,
            store_bytes=round(store_bytes) + of["store"],
            points=sorted(points, key=lambda point: (point.position, point.tier)),
            text=self._host.model.vocabulary.text(np.frombuffer(node.key, np.int32)[:_PREVIEW_TOKENS]),
            is_found=is_found,
        )


def _sequence_copy(sequence: EngineSequence) -> TreeCopy:
    last_used = time.monotonic() if sequence.is_busy else sequence.last_used
    return TreeCopy(sequence.namespace, [NodeCopy(f"slot {sequence.seq}", 0, sequence.tokens.tobytes(), last_used)])


def _joined(trees: Sequence[TreeCopy]) -> TreeCopy:
    """The trees of one namespace, one beside the other."""
    roots = [root for tree in trees for root in tree.roots]
    return TreeCopy(trees[0].namespace, roots, all(tree.is_whole for tree in trees))
