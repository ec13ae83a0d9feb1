"""The drafter chooses a length by what it gains, keeps namespaces apart, and bounds what it remembers."""

import math

import numpy as np
import pytest

from leftoff.drafts import drafter as drafter_module
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.types import Tokens

PROMPT = np.arange(100, 200, dtype=np.int32)
LIKE_A_GPU = {1: 0.010, 8: 0.0105, 64: 0.015}
LIKE_A_CPU = {1: 0.010, 4: 0.020, 64: 0.32}
COMPUTE_BOUND = {1: 0.010, 64: 0.64}


def drafted(drafter: Drafter, num_repeated: int, most: int = 100, num_others: int = 0) -> int:
    """The length of the draft for a reply that has repeated so many tokens of its prompt."""
    trail = drafter.begin("", PROMPT, 0)
    for token in PROMPT[:num_repeated].tolist():
        trail.append(token)
    draft = drafter.draft(trail, most, num_others=num_others)
    assert draft is None or draft.tokens == list(range(100 + num_repeated, 100 + num_repeated + len(draft.tokens)))
    return len(draft.tokens) if draft is not None else 0


def a_drafter(seconds: dict[int, float], *, decodes_again: bool = False) -> Drafter:
    return Drafter(BatchTimes(seconds), decodes_again=decodes_again, most_drafted=24)


def test_the_length_follows_the_odds_and_the_machine() -> None:
    gpu = a_drafter(LIKE_A_GPU)
    assert drafted(gpu, 3) > 0
    assert drafted(gpu, 40) == 24
    assert drafted(a_drafter(LIKE_A_CPU), 3) == 0
    assert 2 <= drafted(a_drafter(LIKE_A_CPU), 40) <= 24
    assert drafted(a_drafter(COMPUTE_BOUND), 60) == 0
    assert drafted(gpu, 40, most=5) == 5
    assert drafted(gpu, 40, most=0) == 0


def test_what_must_be_decoded_again_is_counted() -> None:
    cuts, again = a_drafter(LIKE_A_CPU), a_drafter(LIKE_A_CPU, decodes_again=True)
    assert drafted(again, 12) <= drafted(cuts, 12)


def test_other_replies_wait_no_longer_than_for_one_more() -> None:
    assert drafted(a_drafter(LIKE_A_CPU), 60, num_others=3) <= 1
    free = {1: 0.010, 64: 0.010}
    assert drafted(a_drafter(free), 60, num_others=3) == 24


def test_wrong_drafts_become_none() -> None:
    drafter = a_drafter(LIKE_A_GPU)
    assert drafted(drafter, 8) > 0
    for _ in range(90):
        trail = drafter.begin("", PROMPT, 0)
        for token in [*PROMPT[:8].tolist(), 7]:
            trail.append(token)
    assert drafted(drafter, 8) == 0


def test_namespaces_are_apart() -> None:
    drafter = a_drafter(LIKE_A_GPU)
    trail = drafter.begin("one", PROMPT, 0)
    drafter.finish("one", trail, PROMPT)
    for namespace, expected in (("one", [105]), ("two", None)):
        trail = drafter.begin(namespace, np.array([1, 2], np.int32), 0)
        for token in PROMPT[:5].tolist():
            trail.append(token)
        draft = drafter.draft(trail, 1)
        assert (draft.tokens if draft else None) == expected


def test_a_reply_that_ended_is_known_to_the_next() -> None:
    drafter = a_drafter(LIKE_A_GPU)
    trail = drafter.begin("", PROMPT, 0)
    for token in (1, 2, 3, 4, 5):
        trail.append(token)
    drafter.finish("", trail, PROMPT)
    trail = drafter.begin("", PROMPT, PROMPT.size)
    for token in (1, 2, 3):
        trail.append(token)
    draft = drafter.draft(trail, 9)
    assert draft is not None
    assert draft.tokens == [4, 5]


def test_a_new_log_begins_with_what_the_cache_knows() -> None:
    def known(namespace: str, most: int) -> list[Tokens]:
        assert (namespace, most > 1000) == ("mine", True)
        return [PROMPT]

    drafter = Drafter(BatchTimes(LIKE_A_GPU), decodes_again=False, known=known)
    trail = drafter.begin("mine", np.array([1], np.int32), 0)
    for token in PROMPT[:4].tolist():
        trail.append(token)
    draft = drafter.draft(trail, 2)
    assert draft is not None
    assert draft.tokens == [104, 105]


def test_a_namespace_is_remembered_while_others_are_served() -> None:
    drafter = a_drafter(LIKE_A_GPU)
    drafter.begin("one", PROMPT, 0)
    drafter.begin("two", PROMPT[::-1].copy(), 0)
    trail = drafter.begin("one", np.array([1, 2], np.int32), 0)
    for token in PROMPT[:5].tolist():
        trail.append(token)
    draft = drafter.draft(trail, 1)
    assert draft is not None
    assert draft.tokens == [105]


def test_logs_are_bounded_and_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_module, "_LOGS_BYTES", 1 << 20)
    drafter = a_drafter(LIKE_A_GPU)
    for number in range(100):
        drafter.begin(f"tenant {number}", PROMPT, 0)
    assert drafter.nbytes <= 1 << 20
    drafter.forget(lambda namespace: namespace != "tenant 99")
    assert 0 < drafter.nbytes < 1 << 18
    drafter.forget(lambda _: True)
    assert drafter.nbytes == 0


@pytest.mark.parametrize("decodes_again", [False, True])
@pytest.mark.parametrize("seconds", [LIKE_A_GPU, LIKE_A_CPU, {1: 0.010, 2: 0.011, 3: 0.018, 5: 0.02, 64: 0.09}])
@pytest.mark.parametrize("num_repeated", [3, 6, 12, 40])
def test_no_other_length_gives_more_tokens_a_second(
    seconds: dict[int, float], num_repeated: int, decodes_again: bool
) -> None:
    """All outcomes of each length are counted: so many of its tokens are right, and the one after them is wrong."""
    drafter = a_drafter(seconds, decodes_again=decodes_again)
    trail = drafter.begin("", PROMPT, 0)
    for token in PROMPT[:num_repeated].tolist():
        trail.append(token)
    times = drafter.times.multiples

    def outcomes(length: int) -> list[float]:
        """The chances that 0, 1, 2, … tokens are right."""
        rights = [trail.odds.chance(num_repeated + number) for number in range(length)]
        return [math.prod(rights[:number]) * (1 - right) for number, right in enumerate(rights)] + [math.prod(rights)]

    def rate(length: int) -> float:
        chances = outcomes(length)
        tokens = sum(chance * (1 + num_right) for num_right, chance in enumerate(chances))
        time = times[1 + length]
        if decodes_again:  # the batch is taken back: what was right comes again, in place of a single token
            time += sum(chance * (times[num_right + 2] - times[1]) for num_right, chance in enumerate(chances[:-1]))
        return tokens / time

    draft = drafter.draft(trail, 24)
    length = len(draft.tokens) if draft is not None else 0
    likely = [length for length in range(25) if outcomes(length)[-1] >= 0.05]
    assert length == (max(likely, key=rate) if rate(max(likely, key=rate)) > 1.05 else 0)
