"""How much the cache holds, as far as it is the business of the tenant who asks. Used on the engine's thread."""

from collections.abc import Iterable
from dataclasses import dataclass

from leftoff.cache.resume_point import StoredPage
from leftoff.cache.tier import Tier
from leftoff.cache.tree import Node
from leftoff.server.tenant import Tenant


@dataclass(frozen=True)
class Held:
    """What some nodes of a tree hold."""

    num_bytes: int
    num_entries: int


@dataclass(frozen=True)
class TierLevels:
    """How full a tier is. Where tenants share it, each is told of its own part, and nothing of evictions."""

    name: str
    used_bytes: int
    budget_bytes: int
    num_entries: int
    num_evictions: int | None


def tier_levels(tier: Tier, tenant: Tenant) -> TierLevels:
    store = tier.budget
    if tenant.is_alone:
        return TierLevels(store.name, store.used_bytes, store.budget_bytes, store.num_points, store.num_evictions)
    own = [held_by(tree.nodes()) for namespace, tree in tier.trees.items() if tenant.sees(namespace)]
    num_bytes, num_entries = sum(held.num_bytes for held in own), sum(held.num_entries for held in own)
    return TierLevels(store.name, num_bytes, store.budget_bytes, num_entries, None)


def held_by(nodes: Iterable[Node]) -> Held:
    nodes = list(nodes)
    entries = [point for node in nodes for point in node.points]
    num_bytes = sum(point.nbytes for point in entries) + sum(page.nbytes for page in pages_of(nodes))
    return Held(num_bytes, len(entries))


def pages_of(nodes: Iterable[Node]) -> set[StoredPage]:
    """Each once: nodes may share a page."""
    return {stretch.stored for node in nodes for stretch in node.stretches}
