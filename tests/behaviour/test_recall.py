"""The model that comes with leftoff remembers what it was told 28 turns ago, whatever the cache did in between."""

from collections.abc import Iterator

import pytest

from leftoff.engine.context import ContextSettings
from leftoff.sampling import DEFAULT_SAMPLING, recommended
from leftoff.session import Session
from tests.behaviour.script import ANNA, BEN, QUESTIONS, Person, Talk, ask, tokens_of
from tests.scheduler.recorder import assert_greedy

ONE_SLOT = ContextSettings(num_cells=4096, num_sequences=1, threads=1)
# The pieces in which a prompt is read move this model's logits by up to 0.2; another prompt does by whole units.
ROUNDING = 0.5
FIRST_QUESTION = len(ANNA.turns) - len(QUESTIONS)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(context=ONE_SLOT) as session:
        yield session


@pytest.fixture(scope="module")
def alone(session: Session) -> Talk:
    """One conversation that nothing disturbs: it never leaves its slot."""
    return Talk(session, ANNA).play()


def assert_recalled(talk: Talk, person: Person) -> None:
    for fact, answer in zip(person.facts, talk.answers, strict=True):
        assert fact in answer.text


def test_the_conversation_has_28_turns(alone: Talk) -> None:
    assert len(alone.replies) == len(ANNA.turns) == 28


def test_warm_everything_is_recalled_and_only_new_text_is_read(alone: Talk) -> None:
    assert_recalled(alone, ANNA)
    for before, after in zip(alone.replies, alone.replies[1:], strict=False):
        assert after.report.reused >= before.report.prompt_tokens, "each turn goes on where the last one ended"


def test_again_the_answers_are_the_same_tokens_and_nothing_is_read(session: Session, alone: Talk) -> None:
    """Run before the cache is cleared: the whole prompt is known."""
    for turn, answer in enumerate(alone.answers, FIRST_QUESTION):
        again = ask(session, alone.prompt_of(turn))
        assert again.tokens == answer.tokens
        assert again.report.computed == 0


def test_edited_the_new_fact_is_recalled_and_the_old_one_is_back_after_it(session: Session, alone: Talk) -> None:
    where = FIRST_QUESTION + QUESTIONS.index("Where do I live?")
    edited = [dict(message) for message in alone.prompt_of(where)]
    edited[2]["content"], edited[3]["content"] = "I live in Porto.", "Noted: you live in Porto."
    reply = ask(session, edited)
    assert "Porto" in reply.text
    assert 0 < reply.report.reused < reply.report.prompt_tokens / 4, "what was told before the edit is not read again"
    back = ask(session, alone.prompt_of(where))
    assert back.tokens == alone.replies[where].tokens
    assert back.report.computed == 0


def test_interleaved_in_one_slot_nobody_hears_of_the_other(session: Session, alone: Talk) -> None:
    """Each turn finds the other conversation in the slot. Batches have the same shapes as alone, so that all of it is
    token for token the same, not only what was asked for.
    """
    session.cache.clear()
    anna, ben = Talk(session, ANNA), Talk(session, BEN)
    while ben.go_on() and anna.go_on():
        assert anna.replies[-1].report.reused or len(anna.replies) == 1
    assert_recalled(ben, BEN)
    assert tokens_of(anna.replies) == tokens_of(alone.replies[: len(BEN.turns)])
    for fact, question in zip(ANNA.facts, QUESTIONS, strict=True):
        assert fact in ask(session, [*anna.messages, {"role": "user", "content": question}]).text


def test_cold_the_last_answer_is_the_same(session: Session, alone: Talk) -> None:
    """Its prompt holds all the others."""
    prompt, answer = alone.prompt_of(len(ANNA.turns) - 1), alone.answers[-1]
    session.cache.clear()
    cold = ask(session, prompt)
    assert cold.report.reused == 0
    assert ANNA.facts[-1] in cold.text
    if cold.tokens != answer.tokens:  # one of two words that are as good
        session.cache.clear()
        assert_greedy(session.engine, session._prompt(prompt).tokens, answer.tokens, ROUNDING)


def test_the_answer_to_another_question_would_show(session: Session, alone: Talk) -> None:
    session.cache.clear()
    with pytest.raises(AssertionError, match="not what comes next"):
        assert_greedy(session.engine, session._prompt(alone.prompt_of(1)).tokens, alone.answers[0].tokens, ROUNDING)


def test_a_fact_that_was_never_told_is_not_recalled(session: Session, alone: Talk) -> None:
    """The control: the answers come from what was told, not from the questions."""
    untold = alone.prompt_of(FIRST_QUESTION)[-7:]
    assert ANNA.name not in ask(session, untold).text


def test_its_file_says_that_it_speaks_best_with_care(session: Session) -> None:
    """At the usual temperature words that it rarely met turn into others."""
    assert 0 < recommended(session.engine.model.metadata).temperature < DEFAULT_SAMPLING.temperature / 2
