"""A trail follows what the reply repeats, says from where, and counts how often that is right."""

import numpy as np

from leftoff.drafts.token_log import TokenLog
from leftoff.drafts.trail import DraftSource, Odds, Trail, family_of
from leftoff.types import Tokens

HEADER = list(range(1000, 1064))


def array(numbers: list[int]) -> Tokens:
    return np.array(numbers, np.int32)


def trail_of(log: TokenLog, prompt: list[int], odds: Odds | None = None) -> Trail:
    log.add(array(prompt), 0, family_of(array(prompt)))
    return Trail(log, array(prompt), odds or Odds())


def write(trail: Trail, *tokens: int) -> None:
    for token in tokens:
        trail.append(token)


def test_a_quote_of_the_prompt_is_followed() -> None:
    trail = trail_of(TokenLog(10_000), [*HEADER, 1, 2, 3, 4, 5, 6, 7, 8, 9, 500])
    assert trail.expected(5) == []
    write(trail, 2, 3)
    assert trail.expected(5) == []
    write(trail, 4)
    draft = trail.draft(trail.expected(3))
    assert (draft.tokens, draft.length, draft.source) == ([5, 6, 7], 3, DraftSource.CONVERSATION)
    write(trail, 5, 6)
    draft = trail.draft(trail.expected(9))
    assert (draft.tokens, draft.length) == ([7, 8, 9, 500], 5)
    write(trail, 77)
    assert trail.expected(3) == []


def test_a_reply_that_repeats_itself_is_followed() -> None:
    trail = trail_of(TokenLog(10_000), HEADER)
    write(trail, 1, 2, 3, 4, 1, 2, 3)
    draft = trail.draft(trail.expected(9))
    assert (draft.tokens, draft.source) == ([4, 1, 2, 3], DraftSource.REPLY)


def test_the_source_is_told() -> None:
    log = TokenLog(10_000)
    for header, content in ((HEADER, [31, 32, 33, 34, 35]), (HEADER[::-1], [41, 42, 43, 44, 45])):
        log.add(array([*header, *content]), 0, family_of(array(header)))
    trail = trail_of(log, [*HEADER, 21, 22, 23, 24])
    for content, source in (
        ([21, 22, 23], DraftSource.CONVERSATION),
        ([31, 32, 33], DraftSource.SIBLING),
        ([41, 42, 43], DraftSource.OTHER),
    ):
        write(trail, *content)
        draft = trail.draft(trail.expected(1))
        assert (draft.tokens, draft.source) == ([content[-1] + 1], source)


def test_odds_are_counted_whether_or_not_anything_was_drafted() -> None:
    odds = Odds()
    log = TokenLog(10_000)
    before = odds.chance(3)
    for _ in range(30):
        trail = trail_of(log, [*HEADER, 1, 2, 3, 4], odds)
        write(trail, 1, 2, 3, 99)  # three that repeat, and then never the fourth
    assert odds.chance(3) < before / 2
    assert trail.odds.chance(3) < before / 2
    assert odds.chance(40) == Odds().chance(40)


def test_the_reply_is_kept_with_what_came_before_it() -> None:
    trail = trail_of(TokenLog(10_000), [*HEADER, 1, 2, 3])
    write(trail, 4, 5)
    assert trail.reply == [*HEADER[-5:], 1, 2, 3, 4, 5]
    assert trail.reply_position == len(HEADER) - 5


def test_a_reply_that_turns_from_one_passage_to_another_follows_the_other_with_all_that_matches() -> None:
    trail = trail_of(TokenLog(10_000), HEADER)
    write(trail, *(1, 2, 3, 4, 7), *(20, 21), *(5, 2, 3, 4, 8), *(30, 31), *(1, 2, 3, 4))
    assert trail.expected(1) == [7], "the passage that begins alike"
    write(trail, 8)
    draft = trail.draft(trail.expected(2))
    assert (draft.tokens, draft.length, draft.source) == ([30, 31], 4, DraftSource.REPLY)
