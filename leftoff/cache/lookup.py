"""Everything that is known of one prompt: by the trees of all tiers, and by the sequences in the engine."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from leftoff.adapters import adapters_of
from leftoff.cache.blob_store import store_of
from leftoff.cache.node import Match, ResumePoint
from leftoff.cache.report import Knowledge
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.tier import Tier
from leftoff.cache.tiers import Tiers
from leftoff.engine.memory.base import PagePart
from leftoff.picture_tokens import Pictures, uncut
from leftoff.types import Prompt, Tokens, owner_of


@dataclass(frozen=True, eq=False)
class Lookup:
    """The trees seen as one: what several hold comes from the fastest. `generation` tells whether it is current."""

    tokens: Tokens
    namespace: str
    ram: Match
    lower: tuple[Match, ...] = ()  # in the tiers below RAM, the faster first
    shared: Mapping[EngineSequence, int] = field(default_factory=dict)  # common prefixes with sequences in the engine
    generation: int = 0
    pictures: Pictures = ()
    is_only_read: bool = False  # the prompt: it resumes at its very end also where no logits are kept

    def is_of(self, prompt: Prompt, namespace: str, generation: int) -> bool:
        """Whether this prompt was looked up, and no tree and no sequence has changed since."""
        is_same = self.tokens is prompt.tokens and self.namespace == namespace
        return is_same and self.is_only_read == prompt.is_only_read and self.generation == generation

    @property
    def deepest(self) -> Match:
        return max(self.ram, *self.lower, key=lambda match: match.length) if self.lower else self.ram

    def shared_lengths(self, after: int) -> tuple[int, ...]:
        """Positions behind `after` where the prompt leaves a known path: proven to be shared with another prompt."""
        matches = (self.ram, *self.lower)
        return tuple(match.length for match in matches if match.length > after and match.leaves_midway)

    def points(self) -> list[ResumePoint]:
        """The resume points, by position."""
        points = list(self.ram.points())
        for match in self.lower:
            if match.length:
                known = {point.position for point in points}
                points += [point for point in match.points() if point.position not in known]
                points.sort(key=lambda point: point.position)
        return points

    @cached_property
    def parts(self) -> list[PagePart]:
        """The parts of pages that cover the prompt, by position, each position once."""
        parts = list(_parts(self.ram))
        for match in self.lower:
            parts = _filled(parts, list(_parts(match))) if match.length else parts
        return parts

    @cached_property
    def parts_below(self) -> list[PagePart]:
        """The page parts that lie in a tier below RAM, and must be fetched before they are loaded."""
        return [part for part in self.parts if store_of(part.page) is not None]

    @cached_property
    def covered(self) -> list[tuple[int, int]]:
        """The ranges [start, end) that pages cover without a gap."""
        ranges: list[tuple[int, int]] = []
        for part in self.parts:
            if ranges and ranges[-1][1] == part.start:
                ranges[-1] = (ranges[-1][0], part.end)
            else:
                ranges.append((part.start, part.end))
        return ranges

    def covers(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last in self.covered)


def look_up(prompt: Prompt, namespace: str, tiers: Tiers, sequences: SequenceTable) -> Lookup:
    """Looks a prompt up in the trees of all tiers and in the sequences of the engine."""
    tokens, pictures = prompt.tokens, prompt.pictures
    shared = sequences.shared_with(tokens, namespace)
    return Lookup(
        tokens,
        namespace,
        ram=tiers.ram.match(namespace, tokens),
        lower=tuple(tier.match(namespace, tokens) for tier in tiers.lower),
        shared={each: uncut(pictures, common) for each, common in shared.items()} if pictures else shared,
        generation=generation_of(tiers, sequences),
        pictures=pictures,
        is_only_read=prompt.is_only_read,
    )


def generation_of(tiers: Tiers, sequences: SequenceTable) -> int:
    """Grows with every change to what a plan is made of."""
    return tiers.num_changes + sequences.num_changes


def _differ_in_salt(name: str, namespace: str) -> bool:
    """Whether the namespaces of one owner differ in their salts alone. Tokens read with other adapters count as new."""
    return owner_of(name) == owner_of(namespace) and adapters_of(name) == adapters_of(namespace)


def knowledge_of(lookup: Lookup, ram: Tier) -> Knowledge:
    """How far the prompt is known, and how the known text goes on: for its reuse report."""
    match, namespace = lookup.deepest, lookup.namespace
    # of the same owner only: a tenant must not learn which texts others have sent
    salts = [name for name in ram.trees if name != namespace and _differ_in_salt(name, namespace)]
    elsewhere = max((ram.match(name, lookup.tokens).length for name in salts), default=0)
    lost = max((min(node.lost_until, match.length) for node in match.path), default=0)
    known, ahead = match.length, None
    for sequence, common in lookup.shared.items():
        if common > known:
            known, ahead = common, sequence
    before = ahead.tokens[known:] if ahead is not None else match.continuation
    return Knowledge(known, elsewhere, lost, before)


def _parts(match: Match) -> Iterator[PagePart]:
    """A page may reach past the match: only the part within it is of use."""
    for stretch in match.stretches():
        yield PagePart(stretch.stored.page, stretch.start, min(stretch.end, match.length))


def _filled(parts: list[PagePart], others: list[PagePart]) -> list[PagePart]:
    """`parts`, with the gaps between them filled from `others`."""
    filled, waiting = [], deque(others)
    covered = 0
    for part in (*parts, None):
        stop = part.start if part is not None else sys.maxsize
        while waiting and waiting[0].start < stop:
            other = waiting[0]
            start, end = max(other.start, covered), min(other.end, stop)
            if start < end:
                filled.append(PagePart(other.page, start, end))
            if other.end > stop:
                break  # the rest of it may fill a later gap
            waiting.popleft()
        if part is not None:
            filled.append(part)
            covered = part.end
    return filled
