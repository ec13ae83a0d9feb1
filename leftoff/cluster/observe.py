"""What a replica tells of itself: how busy it is, what things cost here, and from where prompts can be resumed.

The engine's thread only copies references; another thread hashes. A point counts as held if the pages up to it are in
the same tier: a hint for a router, which may miss a little and must not promise too much.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from leftoff.blobs.path_hash import RUN_TOKENS, HashedPath, PathHash, run_start, short
from leftoff.cache.cache import Cache
from leftoff.cache.costs import TierCosts
from leftoff.cache.node import WIDTH
from leftoff.cache.tier import Tier
from leftoff.cache.tree_copy import NodeCopy, TreeCopy, copy_tree
from leftoff.cluster.replica import DISK_COSTS, Held, Load, Rates
from leftoff.scheduler.gate import Readiness
from leftoff.scheduler.scheduler import Scheduler
from leftoff.store.objects import STORE_COSTS
from leftoff.types import Tokens


@dataclass(frozen=True)
class Observation:
    """The state of a replica in one moment. The trees are those of RAM and disk."""

    generation: int
    load: Load
    rates: Rates
    ram: Sequence[TreeCopy]
    disk: Sequence[TreeCopy]
    live: Sequence[tuple[str, Tokens]]  # namespace and tokens of idle sequences in the engine
    readiness: Readiness = field(default_factory=Readiness)


def observe(scheduler: Scheduler, known_generation: int) -> Observation:
    """The state of a replica now. Called on the engine's thread.

    Nothing of the cache is copied again if it is still of the same generation.
    """
    cache = scheduler.cache
    generation = cache.generation
    is_new = generation != known_generation
    return Observation(
        generation,
        _load(scheduler),
        Rates.of(cache.costs, *_tier_costs(cache)),
        _trees(cache.ram) if is_new else [],
        _trees(cache.disk) if is_new and cache.disk is not None else [],
        [(each.namespace, each.tokens.copy()) for each in cache.sequences.idle if not each.is_empty] if is_new else [],
        scheduler.gate.readiness(),
    )


def held_by(observation: Observation, has_pages: bool) -> dict[bytes, Held]:
    """All resume points by tag; the fastest place of each."""
    held: dict[bytes, Held] = {}
    for is_disk, trees in ((True, observation.disk), (False, observation.ram)):
        for tree in trees:
            for root in tree.roots:
                found = _resumable(root, PathHash(tree.namespace), has_pages)
                held |= {
                    tag: Held(tag, run, end, *((0, size) if is_disk else (size, 0))) for tag, run, end, size in found
                }
    for namespace, tokens in observation.live:
        path, end = HashedPath(namespace, tokens), int(tokens.size)
        tag = short(path.tag(end))
        held[tag] = Held(tag, short(path.tag(run_start(end))), end, 0, 0)
    return held


def _load(scheduler: Scheduler) -> Load:
    runs, waiting = scheduler.runs, scheduler.waiting
    reading = sum(run.turn.prompt.length - run.turn.position for run in runs if run.turn.is_reading)
    return Load(
        num_slots=min(scheduler.limits.at_once, scheduler.cache.sequences.num_slots),
        num_running=len(runs),
        num_waiting=len(waiting),
        most_waiting=scheduler.limits.queue,
        queued_tokens=reading + sum(run.prompt.length for run in waiting),
        free_cells=scheduler.cache.memory.free_cells,
    )


def _tier_costs(cache: Cache) -> tuple[TierCosts, TierCosts]:
    """The costs of fetching from the disk and from the store; the usual ones where there is none."""
    store = next((tier for tier in cache.tiers.lower if tier.is_shared), None)
    pairs = ((cache.disk, DISK_COSTS), (store, STORE_COSTS))
    disk_costs, store_costs = (tier.blobs.costs if tier is not None else usual for tier, usual in pairs)
    return disk_costs, store_costs


def _trees(tier: Tier) -> list[TreeCopy]:
    return [copy_tree(tier, namespace) for namespace in tier.trees]


def _resumable(root: NodeCopy, path: PathHash, has_pages: bool) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Tag, tag of the run, position, and bytes to load, of every point that can be resumed from."""
    waiting = [(root, path, path.tag, 0, 0)]
    while waiting:
        node, path, run, covered, page_bytes = waiting.pop()
        sizes = {point.position: point.nbytes for point in node.points}
        borders = range(node.start // RUN_TOKENS * RUN_TOKENS + RUN_TOKENS, node.end + 1, RUN_TOKENS)
        pages = iter((*node.pages, None))
        page, at, path = next(pages), node.start, path.copy()
        for cut in sorted({*sizes, *borders, node.end}):
            path.read(node.key[(at - node.start) * WIDTH : (cut - node.start) * WIDTH])
            at = cut
            while page is not None and page.start < cut:
                if page.start <= covered:
                    covered, page_bytes = page.end, page_bytes + page.nbytes
                page = next(pages)
            if cut in sizes and (covered >= cut or not has_pages):
                yield short(path.tag), short(run), cut, page_bytes + sizes[cut]
            if cut % RUN_TOKENS == 0:
                run = path.tag
        waiting += [(child, path, run, covered, page_bytes) for child in node.children]
