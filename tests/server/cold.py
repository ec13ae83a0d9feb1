"""What a server says that has nothing in its cache: the measure for what it says otherwise."""

from collections.abc import Sequence

from tests.server.alike import NUM_TOP
from tests.server.wire import Answer, MessageDict, Wire

# How a prompt is cut into pieces moves logits by rounding, 0.02 at most where it was measured; those of the tiny models
# have a deviation of 1.3 and more.
ROUNDING = 0.1
# Sparse attention selects what it reads, and rounding may tip the choice: also without a cache its logits move by 0.2
# with the pieces that a prompt is cut into. The words of another conversation are still wrong by far more than this.
ROUNDING_OF_CHOICES = 0.5
SPARSE = ("deepseek4",)


def rounding_of(architecture: str) -> float:
    return ROUNDING_OF_CHOICES if architecture in SPARSE else ROUNDING


def num_ties(wire: Wire, messages: Sequence[MessageDict], warm: Answer, rounding: float = ROUNDING) -> int:
    """Fails unless the reply is what the server says with an empty cache; how often only rounding made a difference.

    Where two tokens are as good, either may come. From there on the cold server goes on from what the warm one chose.
    """
    wire.forget()
    cold = wire.chat(messages, len(warm.tokens), num_top=NUM_TOP)
    prompt = wire.prompt(messages).tolist()
    start, ties = 0, 0
    while True:
        assert cold.cached == 0
        expected = warm.tokens[start:]
        same = _common(cold.tokens, expected)
        if same == len(expected):
            return ties
        chances = cold.top[same]
        behind = max(chances.values()) - chances.get(expected[same], float("-inf"))
        assert behind < rounding, f"token {start + same} of the reply is not what comes next: {behind:.3f} behind"
        start, ties = start + same + 1, ties + 1
        if start == len(warm.tokens):
            return ties
        wire.forget()
        cold = wire.complete([*prompt, *warm.tokens[:start]], len(warm.tokens) - start, NUM_TOP)


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = enumerate(zip(left, right, strict=True))
    return next((at for at, (one, other) in pairs if one != other), len(left))
