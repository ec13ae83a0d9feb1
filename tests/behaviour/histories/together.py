"""Histories of several clients at once. Batches move the rounding: by how much is measured in the same run.

What the cache does must be within that: the answers of a server that resumes, of one that reads everything anew in the
same company, and of one that has nobody else to talk to are compared.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import httpx

from tests.behaviour.histories.answers import Gap, Told, ask, gap
from tests.behaviour.histories.lives import many_slots, never_left
from tests.behaviour.histories.play import has_chat, sizes_for
from tests.behaviour.histories.tree import Tree

_NUM_CLIENTS = 3


@dataclass(frozen=True)
class Crowd:
    """Gaps to the answers of a server that talks to one client at a time."""

    resumed: list[Gap]
    read_anew: list[Gap]
    num_cached: int

    @property
    def largest(self) -> float:
        return max(gap.largest for gap in self.resumed)

    @property
    def noise(self) -> float:
        return max(gap.largest for gap in self.read_anew)

    def __str__(self) -> str:
        return "\n".join(
            f"{name}: largest {max(g.largest for g in gaps):.6f}, mean {mean(g.largest for g in gaps):.6f}, "
            f"{sum(g.num_differing for g in gaps)} of {len(gaps)} replies differ"
            for name, gaps in (("resumed in company", self.resumed), ("read anew in company", self.read_anew))
        )


def play_together(model: Path, num_steps: int, seed: int, flags: Sequence[str]) -> Crowd:
    """`num_steps` of each client."""
    with never_left(model, flags) as cold:
        sizes, with_chat = sizes_for(cold, is_slow=False), has_chat(cold)
        trees = [Tree(100 * seed + client, sizes, with_chat=with_chat) for client in range(_NUM_CLIENTS)]
        with many_slots(model, flags) as crowded:
            told = _at_once(lambda client: _talk(crowded, trees[client], num_steps))
            again = _at_once(lambda client: _repeat(crowded, told[client], f"anew {client}"))
        alone = [_repeat(cold, talk, f"alone {client}") for client, talk in enumerate(told)]
    return Crowd(_gaps(told, alone), _gaps(again, alone), sum(t.answer.num_cached for talk in told for t in talk))


def _at_once(talk: Callable[[int], list[Told]]) -> list[list[Told]]:
    with ThreadPoolExecutor(_NUM_CLIENTS) as clients:
        return list(clients.map(talk, range(_NUM_CLIENTS)))


def _talk(http: httpx.Client, tree: Tree, num_steps: int) -> list[Told]:
    told: list[Told] = []
    while len(told) < num_steps:
        step = tree.next()
        answer = ask(http, step)
        if answer is not None:
            tree.answered(answer.tokens, answer.text)
            told.append(Told(step, answer))
    return told


def _repeat(http: httpx.Client, told: Sequence[Told], name: str) -> list[Told]:
    """The same steps, each read from the beginning."""
    repeated = []
    for number, one in enumerate(told):
        answer = ask(http, one.step, salt=f"{name} {number}")
        assert answer is not None
        assert answer.num_cached == 0
        repeated.append(Told(one.step, answer))
    return repeated


def _gaps(told: Sequence[Sequence[Told]], alone: Sequence[Sequence[Told]]) -> list[Gap]:
    pairs = [pair for one, other in zip(told, alone, strict=True) for pair in zip(one, other, strict=True)]
    return [gap(one.answer, other.answer) for one, other in pairs]
