"""The held-out questions: conversations of words, and partly phrasings, that the generator never uses.

python -m training.questions writes them anew into `heldout/*.jsonl`: the same ones every time. They stay in the
repository, so that a change of the generator cannot move the goal.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from training.chat import Chat, Json
from training.content import HERE, Content, heldout_content
from training.draw import Draw
from training.phrasing import asked
from training.scenes import play
from training.skills.base import Skill
from training.skills.recall import Recall
from training.skills.sheet import Sheet
from training.skills.shopping import Shopping
from training.skills.table import Table
from training.skills.talk import Talk, World
from training.skills.toolbox import Toolbox

FOLDER = HERE / "heldout"


@dataclass(frozen=True)
class Question:
    """`want` is what the reply must contain, or for a tool the whole call."""

    ask: str
    want: str | Json


@dataclass(frozen=True)
class Conversation:
    """What came before, and several ways to go on: they share a beginning, as real requests do."""

    kind: str
    messages: list[Json]
    questions: list[Question]
    tools: list[Json] = field(default_factory=list)
    thinks: bool = False


def read(name: str) -> Iterator[Conversation]:
    for line in (FOLDER / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield Conversation(**{**row, "questions": [Question(**question) for question in row["questions"]]})


def recall(draw: Draw, kind: str, turns: int, count: int) -> Conversation:
    chat = Chat()
    memory = Recall(draw, chat)
    others: list[Skill] = [Talk(draw, chat), World(draw, chat), Shopping(draw, chat)]
    memory.tell(2)
    while len(chat.said("user")) < turns:
        memory.tell(draw.pick((1, 1, 2))) if draw.chance(0.4) else play(draw, (1, 1), [(1, other) for other in others])
    facts = draw.some(memory.known, count)
    return _conversation(kind, chat, [Question(asked(draw, draw.pick(fact.asks), 0.1), fact.value) for fact in facts])


def lookup(draw: Draw, kind: str, num_rows: int, count: int) -> Conversation:
    chat = Chat()
    table = Table(draw, chat, num_rows)
    chat.system = table.system()
    found = [table.any_forwards() for _ in range(count)]
    return _conversation(kind, chat, [Question(question.ask, question.want) for question in found])


def sheet(draw: Draw, kind: str, num_facts: int, count: int) -> Conversation:
    chat = Chat()
    facts = Sheet(draw, chat, num_facts)
    chat.system = facts.system()
    found = [facts.question() for _ in range(count)]
    return _conversation(kind, chat, [Question(asked(draw, question.ask, 0.1), question.want) for question in found])


def tools(draw: Draw, kind: str, num_tools: int, count: int) -> Conversation:
    chat = Chat()
    toolbox = Toolbox(draw, chat, num_tools)
    uses = [toolbox.use() for _ in range(count)]
    return _conversation(kind, chat, [Question(use.ask, asdict(use.call)) for use in uses])


def _conversation(kind: str, chat: Chat, questions: list[Question]) -> Conversation:
    system: list[Json] = [{"role": "system", "content": chat.system}] if chat.system else []
    messages: list[Json] = [{"role": message.role, "content": message.content} for message in chat.messages]
    return Conversation(kind, system + messages, questions, list(chat.tools))


Make = Callable[[Draw, str, int, int], Conversation]


@dataclass(frozen=True)
class Part:
    """Some conversations of one kind: how large, how many, and how many questions each."""

    name: str
    kind: str
    make: Make
    sizes: tuple[int, ...]
    num_questions: int
    rephrased: bool = False
    thinks: bool = False
    new_tools: bool = False


PARTS = (
    Part("recall", "new words", recall, (2, 3, 4, 5, 6, 7, 8, 9, 10, 12) * 2, 5),
    Part("recall", "over 28 turns", recall, (28,) * 6, 10),
    Part("recall", "new phrasings", recall, (2, 3, 4, 5, 6, 7, 8, 10), 5, rephrased=True),
    Part("lookup", "new words", lookup, (5, 6, 8, 8, 10, 12, 15, 20, 25, 30, 40, 50), 8),
    Part("lookup", "new phrasings", lookup, (5, 8, 12, 20, 30), 8, rephrased=True),
    Part("sheet", "new words", sheet, (4, 5, 6, 8, 10, 12, 16, 20, 30, 40), 8),
    Part("sheet", "new phrasings", sheet, (4, 6, 8, 12, 16), 8, rephrased=True),
    Part("tools", "new words", tools, (1, 2, 2, 3, 3, 4, 4, 5, 6, 6), 8),
    Part("tools", "new phrasings", tools, (2, 3, 4, 5, 6), 8, rephrased=True),
    Part("tools", "new tools", tools, (1, 2, 3, 4), 8, rephrased=True, new_tools=True),
    Part("think", "recall", recall, (2, 3, 4, 5, 6, 8), 5, thinks=True),
    Part("think", "fact sheet", sheet, (4, 6, 8, 10, 12, 16), 5, thinks=True),
)


def write() -> None:
    lines: dict[str, list[str]] = {}
    for part in PARTS:
        draw = Draw(f"held out {part.name} {part.kind}", _content(part))
        for size in part.sizes:
            made = asdict(part.make(draw, part.kind, size, part.num_questions)) | {"thinks": part.thinks}
            lines.setdefault(part.name, []).append(json.dumps(made, ensure_ascii=False))
    for name, texts in lines.items():
        (FOLDER / f"{name}.jsonl").write_text("\n".join(texts) + "\n")


def _content(part: Part) -> Content:
    content = heldout_content(rephrased=part.rephrased)
    if not part.rephrased:
        return content
    tools = [tool for tool in content.tools if tool.get("is_new", False) == part.new_tools]
    return Content(**{**vars(content), "tools": tools})


if __name__ == "__main__":
    write()
