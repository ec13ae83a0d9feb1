"""The scripted conversations on real models of every memory kind: the replies are those of a model that starts cold.

An engine of its own reads every conversation from its first token: what it says is the measure. The conversations are
shorter than in `test_scripts.py`, and so are the gaps between snapshots.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.cache.placement import Placement
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Logits, Tokens
from tests.cache.real import Ends, RealServer, doubts
from tests.cache.scripts import SCRIPTS, Account, Script, Served, Step, Writer, play
from tests.factory import model_path
from tests.server.cold import SPARSE

KINDS = {
    "llama": MemoryKind.ATTENTION,
    "qwen35": MemoryKind.HYBRID,
    "mamba2": MemoryKind.RECURRENT,
    "gemma3": MemoryKind.WINDOW,
    "deepseek4": MemoryKind.HYBRID,
}
# To the cache a compressed memory is a hybrid one, of which every script is played: here, what grows and what is cut.
_CUT_SHORT = {"deepseek4": ("12 turns", "edit and return")}
PLAYED = [(architecture, script) for architecture in KINDS for script in _CUT_SHORT.get(architecture, SCRIPTS)]
UNLIMITED = 1 << 40
ALLOWED = 1.02
SCALE = 0.25
PLACEMENT = Placement(overhead=0.03, smallest_gap=12, smallest_reply_gap=6, slack=3)  # to the same scale
# Rounding depends on how a prompt is cut into pieces; a wrong state is wrong by whole deviations.
ROUNDING = 0.03


@dataclass(frozen=True)
class Answer:
    """A prompt and its reply, and where the chunks ended in which a server read them, if that matters."""

    prompt: Tokens
    reply: Tokens
    ends: Ends = ()

    @property
    def text(self) -> Tokens:
        return np.concatenate([self.prompt, self.reply])

    @property
    def turn(self) -> range:
        """The end of the prompt, and of each token of the reply."""
        return range(self.prompt.size, self.text.size + 1)

    def begins(self, longer: "Answer") -> bool:
        is_read_alike = self.ends == longer.ends[: len(self.ends)]
        return is_read_alike and np.array_equal(self.text, longer.text[: self.text.size])


@dataclass(frozen=True)
class Pair:
    """Two engines on one model: one serves, the other one says what is right."""

    warm: LlamaEngine
    cold: LlamaEngine

    def serve(self, server: RealServer, step: Step) -> tuple[Served, Answer]:
        served = server.serve(step)
        answer = Answer(step.prompt.tokens, served.reply)
        if self.warm.model.architecture in SPARSE:
            # It chooses what to look at, and the pieces tip the choice: only the same ones give the same reply.
            answer = replace(answer, ends=server.chunks[answer.text.tobytes()])
        return served, answer

    def doubts(self, answers: Sequence[Answer]) -> Logits:
        """Of every token of the replies. A conversation that goes on is read once, as far as it goes."""
        seen: list[Logits] = []
        left = sorted(answers, key=lambda answer: answer.text.size)
        while left:
            longest = left[-1]
            along = [answer for answer in left if answer.begins(longest)]
            left = [answer for answer in left if not answer.begins(longest)]
            ends = longest.ends or sorted({end for answer in along for end in answer.turn})
            below = doubts(self.cold, longest.text, ends)
            seen += [below[answer.prompt.size : answer.text.size] for answer in along]
        return np.concatenate(seen)


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    path = model_path(request.param)
    two, one = (ContextSettings(num_cells=4096, num_sequences=number, threads=1) for number in (2, 1))
    with LlamaEngine.open(path, two) as warm, LlamaEngine.open(path, one) as cold:
        assert warm.memory.kind is KINDS[request.param]
        yield Pair(warm, cold)


@pytest.mark.parametrize(("pair", "script"), PLAYED, indirect=["pair"])
def test_replies_are_those_of_a_cold_start_and_hardly_more_is_read_than_is_new(pair: Pair, script: str) -> None:
    account = play_and_compare(pair, script, num_slots=1, budget_bytes=UNLIMITED)
    assert account.computed <= ALLOWED * account.unavoidable, f"{account}: {account.ratio:.3f} of the unavoidable"


@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_replies_are_right_where_ram_gives_up_what_a_slot_holds(pair: Pair) -> None:
    kind = pair.warm.memory.kind
    held = bytes_held(pair, "4 agents")
    given_up: list[int] = []

    def watch(cache: Cache) -> None:
        store, shed = cache.ram.budget, cache.ram.budget.shed
        assert shed is not None

        def watched(nbytes: int) -> None:
            before = store.used_bytes
            shed(nbytes)
            given_up.append(before - store.used_bytes)

        store.shed = watched

    play_and_compare(pair, "4 agents", num_slots=2, budget_bytes=held // 3, watch=watch)
    assert (sum(given_up) > 0) == kind.has_pages


def bytes_held(pair: Pair, script: str) -> int:
    """What RAM holds in the end if it gives nothing up."""
    cache = emptied(pair, num_slots=2, budget_bytes=UNLIMITED)
    play(written(pair, script), RealServer(pair.warm, cache).serve)
    return cache.ram.budget.used_bytes


def emptied(pair: Pair, *, num_slots: int, budget_bytes: int) -> Cache:
    for seq in range(pair.warm.memory.num_sequences):
        pair.warm.memory.drop(seq)
    return Cache(pair.warm.memory, num_slots=num_slots, budget_bytes=budget_bytes, placement=PLACEMENT, page_tokens=64)


def written(pair: Pair, script: str) -> Script:
    return SCRIPTS[script](Writer(1, pair.warm.model.vocabulary.size, SCALE))


def play_and_compare(
    pair: Pair, script: str, *, num_slots: int, budget_bytes: int, watch: Callable[[Cache], None] = lambda _: None
) -> Account:
    """Every reply is held against a cold start's."""
    cache = emptied(pair, num_slots=num_slots, budget_bytes=budget_bytes)
    watch(cache)
    server = RealServer(pair.warm, cache)
    answers: list[Answer] = []

    def serve(step: Step) -> Served:
        served, answer = pair.serve(server, step)
        answers.append(answer)
        return served

    account = play(written(pair, script), serve)
    cache.check_integrity()
    below = pair.doubts(answers)
    assert below.max() < ROUNDING, f"a token that a cold start ranks {below.max():.3f} deviations below its best"
    assert (below > 0).mean() <= 0.01, "ties are rare"
    return account


@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_a_reply_from_the_state_of_another_conversation_would_show(pair: Pair) -> None:
    size = pair.warm.model.vocabulary.size
    step, other = (next(SCRIPTS["12 turns"](Writer(seed, size, SCALE))) for seed in (1, 2))
    server = RealServer(pair.warm, Cache(pair.warm.memory, num_slots=1, budget_bytes=0))
    reply = server.serve(step).reply
    below = [pair.doubts([Answer(prompt.tokens, reply)]) for prompt in (step.prompt, other.prompt)]
    assert below[0].max() < ROUNDING
    assert below[1].max() > 10 * ROUNDING
