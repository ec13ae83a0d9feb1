"""Sets of adapters: no path of one set is a path of another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.adapters import NO_ADAPTERS, NUM_MARKS, Adapter, AdapterSet, without_adapters
from leftoff.picture_tokens import picture_tokens, pictures_in, unmarked
from leftoff.types import Prompt, Tokens, owner_of

ONE, TWO = Adapter("1" * 64), Adapter("2" * 64)
CALLED = Adapter("3" * 64, invocation=(7, 8, 9, 10))


def tokens(*numbers: int) -> Tokens:
    return np.array(numbers, np.int32)


def test_the_order_in_which_adapters_are_given_makes_no_difference() -> None:
    assert AdapterSet.of([ONE, TWO]) == AdapterSet.of([TWO, ONE])
    assert AdapterSet.of([ONE, TWO]).fingerprint == AdapterSet.of([TWO, ONE]).fingerprint


def test_one_without_effect_is_not_in_the_set() -> None:
    assert AdapterSet.of([Adapter("1" * 64, 0.0)]) == NO_ADAPTERS
    assert not NO_ADAPTERS


def test_every_set_has_a_fingerprint_of_its_own() -> None:
    half = Adapter(ONE.fingerprint, 0.5)
    sets = [NO_ADAPTERS, *map(AdapterSet.of, ([ONE], [half], [TWO], [ONE, TWO], [half, TWO]))]
    assert len({each.fingerprint for each in sets}) == len(sets)


@pytest.mark.parametrize("namespace", ["", "tenant/", "tenant/salt", "a/lora:b", "/lora:"])
def test_a_namespace_tells_the_set_and_keeps_its_owner(namespace: str) -> None:
    adapters = AdapterSet.of([ONE])
    own = adapters.namespace(namespace)
    assert own != namespace == NO_ADAPTERS.namespace(namespace)
    assert owner_of(own) == owner_of(namespace)
    assert without_adapters(own) == namespace
    assert NO_ADAPTERS.namespace(own) == namespace  # what is read without adapters never goes to theirs
    assert AdapterSet.of([TWO]).namespace(own) == AdapterSet.of([TWO]).namespace(namespace)


def test_an_adapter_acts_from_the_first_token_and_an_alora_from_its_last_invocation() -> None:
    text = tokens(1, 7, 8, 9, 10, 2, 7, 8, 9, 10, 3, 7, 8)
    assert AdapterSet.of([ONE]).start_in(text) == 0
    assert AdapterSet.of([CALLED]).start_in(text) == 6
    assert AdapterSet.of([CALLED]).start_in(text[:4]) is None
    assert NO_ADAPTERS.start_in(text) is None


def test_a_prompt_that_does_not_invoke_an_alora_is_read_without_it() -> None:
    prompt = Prompt(tokens(1, 2, 3)).adapted(AdapterSet.of([CALLED]))
    assert prompt.adapters == NO_ADAPTERS
    assert Prompt(tokens(1, 2, 3)).adapted(NO_ADAPTERS).adapters == NO_ADAPTERS


def test_a_path_leaves_the_common_one_at_the_invocation_if_that_is_long_enough() -> None:
    adapters = AdapterSet.of([CALLED])
    assert adapters.leaves_at(20) == 20
    short = AdapterSet.of([Adapter("4" * 64, invocation=(7,))])
    assert short.leaves_at(20) == 20 + 1 - NUM_MARKS
    assert short.leaves_at(2) == 0


def test_a_path_leaves_the_common_one_behind_a_picture_and_never_within_it() -> None:
    text = np.concatenate([tokens(1, 2, 3), picture_tokens(b"key", 6, 6), tokens(4, 7)])
    short = AdapterSet.of([Adapter("4" * 64, invocation=(7,))])
    assert short.leaves_at(10, pictures_in(text)) == 9


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 39), st.sampled_from([1, 4, 64]))
def test_a_path_tells_its_set_its_start_and_its_tokens(numbers: list[int], start: int, back: int) -> None:
    text = tokens(*numbers)
    start = min(start, text.size - 1)
    leaves_at = max(0, start - start % back)
    one, two = AdapterSet.of([CALLED]), AdapterSet.of([Adapter(CALLED.fingerprint, 0.5, CALLED.invocation)])
    path = one.marked(text, start, leaves_at)
    assert np.array_equal(path[:leaves_at], text[:leaves_at])
    assert path[leaves_at] >= 1 << 30
    assert path[leaves_at] != two.marked(text, start, leaves_at)[leaves_at]
    assert path[leaves_at] != one.marked(text, start + 1, leaves_at)[leaves_at]
    other = text.copy()
    other[leaves_at] += 1
    assert path[leaves_at] != one.marked(other, start, leaves_at)[leaves_at]
    assert np.array_equal(unmarked(path), path)  # no mark is taken for a token of a vocabulary
