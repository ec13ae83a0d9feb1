"""What is unavoidable: only what no earlier prompt or reply has shown."""

import numpy as np

from lab.bench.account import Account
from leftoff.types import Tokens


def tokens(text: str) -> Tokens:
    return np.array([ord(letter) for letter in text], np.int32)


def test_the_first_prompt_is_all_new() -> None:
    account = Account()
    assert account.ask(tokens("system, one")) == 11
    assert account.unavoidable == 11


def test_the_longest_of_all_beginnings_counts_and_they_add_up() -> None:
    account = Account()
    numbers = [account.ask(tokens(text)) for text in ("abcd", "abxy", "abcdef", "z", "abxyz")]
    assert numbers == [4, 2, 2, 1, 1]
    assert account.unavoidable == 10


def test_a_reply_is_known_after_its_prompt_only() -> None:
    account = Account()
    account.ask(tokens("question"))
    account.show(tokens("question"), tokens(" answer"))
    assert account.ask(tokens("question answer, more")) == 6
    assert account.ask(tokens(" answer")) == 7


def test_the_same_prompt_again_is_not_new() -> None:
    account = Account()
    assert [account.ask(tokens("again")) for _ in range(3)] == [5, 0, 0]
