"""How replies are judged, and that the whole examination runs on a model that knows nothing."""

from pathlib import Path

import pytest

from leftoff import Session
from leftoff.engine.context import ContextSettings
from tests.training.reference import random_parameters
from training.convert import convert
from training.evaluate import SKILLS, Answer, Examiner, broken_promises, is_right, lines
from training.questions import Question, read
from training.shape import MICRO

_CALL = {"name": "dial", "arguments": {"who": "Ann", "times": 2}}
_SAID = '<tool_call>\n{"name": "dial", "arguments": {"who": "Ann", "times": 2}}\n</tool_call>'


@pytest.mark.parametrize(
    ("reply", "want", "thinks", "right"),
    [
        ("Your cat is called Moss.", "moss", False, True),
        ("Your cat is called Mossy.", "Fern", False, False),
        ("<think>\nIt is Moss.\n</think>\n\nMoss.", "Moss", True, True),
        ("<think>\nIt is Moss.\n</think>\n\nFern.", "Moss", True, False),
        ("Moss.", "Moss", True, False),
        ("<think>\nIt is Moss, it is Moss, it is", "Moss", True, False),
        (_SAID, _CALL, False, True),
        ("Let me see.\n" + _SAID, _CALL, False, True),
        (_SAID + _SAID, _CALL, False, False),
        (_SAID.replace("2", "3"), _CALL, False, False),
        (_SAID.replace("}}", "}"), _CALL, False, False),
    ],
)
def test_a_reply_is_right_if_it_says_what_is_wanted(reply: str, want: object, thinks: bool, right: bool) -> None:
    assert is_right(reply, want, thinks=thinks) is right


def _answers(skill: str, right: int, total: int, kind: str = "new words") -> list[Answer]:
    return [Answer(skill, kind, Question("?", "!"), "", i < right, 0, 1) for i in range(total)]


def test_a_broken_promise_is_named() -> None:
    kept = _answers("recall", 95, 100) + _answers("tools", 96, 100) + _answers("lookup", 85, 100)
    assert broken_promises(kept) == []
    broken = _answers("recall", 94, 100) + _answers("tools", 96, 100) + _answers("lookup", 85, 100)
    assert broken_promises(broken) == ["recall is 0.940: promised is 0.95"]


def test_the_table_shows_what_is_promised_and_what_lies_beyond() -> None:
    answers = _answers("lookup", 0, 2, "new phrasings") + _answers("lookup", 1, 4)
    assert list(lines("lookup", answers)) == [
        "list look-up  new words           1 of 4      0.25",
        "list look-up  promised            1 of 4      0.25  at least 0.85",
        "list look-up  new phrasings       0 of 2      0.00",
    ]


def test_the_questions_are_many_enough() -> None:
    counts = {skill: sum(len(conversation.questions) for conversation in read(skill)) for skill in SKILLS}
    assert all(50 <= count <= 220 for count in counts.values()), counts


@pytest.mark.parametrize("skill", ["tools", "think"])
def test_a_model_that_knows_nothing_answers_wrongly(skill: str, tmp_path: Path) -> None:
    convert(random_parameters(MICRO), MICRO, tmp_path / "micro.gguf")
    few = [next(read(skill))]
    with Session(
        tmp_path / "micro.gguf", context=ContextSettings(num_cells=2048, num_sequences=2, threads=1)
    ) as session:
        answers = list(Examiner(session).answers(skill, few))
    assert len(answers) == len(few[0].questions)
    assert not any(answer.is_right for answer in answers)
    assert sum(answer.reused for answer in answers) > 0
