"""What the cache holds never changes what is said: the same tokens as from a server that has just been emptied."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from leftoff.engine.memory.base import MemoryKind
from tests.server.alike import NUM_TOP, difference
from tests.server.cold import num_ties, rounding_of
from tests.server.wire import Answer, MessageDict, Texts, Wire, says, wired

KINDS = {
    "llama": MemoryKind.ATTENTION,
    "qwen35": MemoryKind.HYBRID,
    "mamba2": MemoryKind.RECURRENT,
    "gemma3": MemoryKind.WINDOW,
    "deepseek4": MemoryKind.HYBRID,
}
NUM_REPLY = 12
BATCH_TOKENS = 512
LONG_PROMPTS = dict.fromkeys(KINDS, 1_300) | {"mamba2": 6_000}  # more than one batch of tokens
READ_TWICE = ("mamba2", "qwen35")  # with a question after the long prompt, which takes a second reading to check
# One slot: whoever comes between two turns takes it, and the next turn comes back from RAM.
SLOTS = 1


@dataclass(frozen=True)
class Turn:
    """What was sent, and what came back."""

    messages: list[MessageDict]
    answer: Answer


@pytest.fixture(scope="module", params=KINDS)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wire(architecture: str) -> Iterator[Wire]:
    with wired(architecture, slots=SLOTS) as wire:
        assert wire.memory == KINDS[architecture].value
        yield wire


def ask(wire: Wire, messages: list[MessageDict]) -> Turn:
    return Turn(messages, wire.chat(messages, NUM_REPLY, num_top=NUM_TOP))


def converse(wire: Wire, texts: Texts) -> Iterator[Turn]:
    """Every other time somebody else comes between; then a question is asked anew, and the old one goes on."""
    chat = [says("system", texts.text(150))]
    asked = []
    for number in range(5):
        asked.append([*chat, says("user", texts.text(20, 120))])
        turn = ask(wire, asked[-1])
        yield turn
        chat = [*turn.messages, says("assistant", turn.answer.text)]
        if number % 2:
            yield ask(wire, [says("user", texts.text(100))])
    yield ask(wire, [*asked[2][:-1], says("user", texts.text(50))])
    yield ask(wire, asked[3])
    yield ask(wire, [*chat, says("user", texts.text(50))])


def test_a_conversation(wire: Wire, architecture: str) -> None:
    wire.forget()
    turns = list(converse(wire, Texts(1)))
    warm = [turn.answer.cached / turn.answer.prompt_tokens for turn in turns]
    assert sum(share > 0.5 for share in warm) >= 7, "most turns go on from the cache"
    ties = [num_ties(wire, turn.messages, turn.answer, rounding_of(architecture)) for turn in turns]
    assert sum(ties) <= len(turns), f"ties are rare: {ties}"


def test_the_words_of_another_conversation_would_show(wire: Wire, architecture: str) -> None:
    texts = Texts(3)
    one, other = ([says("user", texts.text(100))] for _ in range(2))
    answer = ask(wire, one).answer
    assert num_ties(wire, one, answer, rounding_of(architecture)) == 0
    with pytest.raises(AssertionError, match="is not what comes next"):
        num_ties(wire, other, answer, rounding_of(architecture))


@pytest.mark.parametrize(("architecture", "num_tokens"), LONG_PROMPTS.items())
def test_a_long_prompt(architecture: str, num_tokens: int) -> None:
    texts = Texts(2)
    messages = [says("user", texts.text(num_tokens))]
    with wired(architecture, slots=SLOTS, batch=BATCH_TOKENS) as wire:
        cold = ask(wire, messages).answer
        ask(wire, [says("user", texts.text(100))])
        warm = ask(wire, messages).answer
        assert (cold.cached, warm.cached) == (0, warm.prompt_tokens)
        assert difference(warm, cold) < rounding_of(architecture)
        if architecture in READ_TWICE:
            turn = ask(wire, [*messages, says("assistant", warm.text), says("user", texts.text(60))])
            assert turn.answer.cached >= num_tokens
            assert num_ties(wire, turn.messages, turn.answer) <= 4, "ties are rare"
