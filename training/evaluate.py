"""Asks a model the held-out questions, through leftoff itself.

python -m training.evaluate [MODEL.gguf] [--misses]

Greedy, with the model's own chat template. Prints a table; exits with 1 if the model falls below what is promised.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leftoff import Session
from leftoff.chat.conversation import Conversation as ChatConversation
from leftoff.chat.prompts import PromptMaker
from leftoff.engine.context import ContextSettings
from leftoff.hub.reference import default_model
from training.chat import Json
from training.questions import Conversation, Question, read

SKILLS = {"recall": "recall", "lookup": "list look-up", "sheet": "fact sheet", "tools": "tool call", "think": "think"}
PROMISED = {"recall": 0.95, "tools": 0.95, "lookup": 0.85}
BEYOND = ("new phrasings", "new tools")  # outside the model's small world: shown, not promised

_MAX_TOKENS = 160
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_CONTEXT = ContextSettings(num_cells=16384, threads=1)  # so small a model gains nothing from a second thread


@dataclass(frozen=True)
class Answer:
    skill: str
    kind: str
    question: Question
    reply: str
    is_right: bool
    reused: int
    computed: int


@dataclass(frozen=True)
class Score:
    right: int
    total: int

    @property
    def share(self) -> float:
        return self.right / self.total

    def line(self, skill: str, kind: str) -> str:
        return f"{skill:<14}{kind:<16}{self.right:>5} of {self.total:<5}{self.share:>6.2f}"


class Examiner:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._prompts = PromptMaker(session.engine.model)

    def answers(self, skill: str, conversations: Iterable[Conversation]) -> Iterator[Answer]:
        for conversation in conversations:
            for question in conversation.questions:
                yield self._ask(skill, conversation, question)

    def _ask(self, skill: str, conversation: Conversation, question: Question) -> Answer:
        messages: list[Json] = [*conversation.messages, {"role": "user", "content": question.ask}]
        prompt = self._prompts.from_conversation(
            ChatConversation(
                messages,
                tools=[dict(tool) for tool in conversation.tools] or None,
                options={"enable_thinking": True} if conversation.thinks else {},
            )
        )
        reply = self._session.generate(prompt.tokens, max_tokens=_MAX_TOKENS)
        right = is_right(reply.text, question.want, thinks=conversation.thinks)
        report = reply.report
        return Answer(skill, conversation.kind, question, reply.text, right, report.reused, report.computed)


def is_right(reply: str, want: object, *, thinks: bool = False) -> bool:
    """Whether the wanted text is in the reply, after its thoughts, or the wanted call is the one that it makes."""
    if isinstance(want, dict):
        calls = _CALL.findall(reply)
        return len(calls) == 1 and _parsed(calls[0]) == want
    thoughts, closed, spoken = reply.rpartition("</think>")
    if thinks and not (closed and thoughts.startswith("<think>")):
        return False
    return str(want).lower() in spoken.lower()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def score(answers: list[Answer]) -> Score:
    return Score(sum(answer.is_right for answer in answers), len(answers))


def lines(skill: str, answers: list[Answer]) -> Iterator[str]:
    """A line per kind of question; what is promised stands below the kinds it is promised for."""
    kinds = list(dict.fromkeys(answer.kind for answer in answers))
    for kind in sorted(kinds, key=BEYOND.__contains__):
        yield score([answer for answer in answers if answer.kind == kind]).line(SKILLS[skill], kind)
        if skill in PROMISED and kind == [kind for kind in kinds if kind not in BEYOND][-1]:
            yield promised(answers).line(SKILLS[skill], "promised") + f"  at least {PROMISED[skill]:.2f}"


def promised(answers: list[Answer]) -> Score:
    return score([answer for answer in answers if answer.kind not in BEYOND])


def miss(answer: Answer) -> str:
    question = answer.question
    return f"{answer.skill}, {answer.kind}: {question.ask!r}\n  want {question.want}\n  got  {answer.reply!r}"


def broken_promises(answers: list[Answer]) -> list[str]:
    scores = {skill: promised([answer for answer in answers if answer.skill == skill]) for skill in PROMISED}
    return [
        f"{SKILLS[skill]} is {found.share:.3f}: promised is {PROMISED[skill]:.2f}"
        for skill, found in scores.items()
        if found.share < PROMISED[skill]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Ask a model the held-out questions.")
    parser.add_argument("model", nargs="?", type=Path, default=default_model(), help="a GGUF file (the embedded model)")
    parser.add_argument("--misses", action="store_true", help="print every wrong reply")
    options = parser.parse_args()
    if options.model is None:
        parser.error("there is no embedded model here: give the path of a GGUF file")
    with Session(options.model, context=_CONTEXT) as session:
        answers = _examine(Examiner(session), show_misses=options.misses)
    reused, computed = (sum(getattr(answer, name) for answer in answers) for name in ("reused", "computed"))
    print(f"{len(answers)} questions; of the prompts {reused:,} tokens were reused, {computed:,} computed")
    broken = broken_promises(answers)
    print("\n".join(broken), end="\n" if broken else "", file=sys.stderr)
    return 1 if broken else 0


def _examine(examiner: Examiner, *, show_misses: bool) -> list[Answer]:
    """All answers, with the table growing on the screen."""
    answers: list[Answer] = []
    for skill in SKILLS:
        found = list(examiner.answers(skill, read(skill)))
        print(
            "\n".join([*(miss(a) for a in found if show_misses and not a.is_right), *lines(skill, found)]), flush=True
        )
        answers += found
    return answers


if __name__ == "__main__":
    sys.exit(main())
