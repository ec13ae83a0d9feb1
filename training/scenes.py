"""Conversations as they happen: a setting, and the skills that take turns in it."""

from collections.abc import Callable

from training.chat import Chat
from training.draw import Draw
from training.skills.base import Skill
from training.skills.booking import Booking
from training.skills.closing import Closing
from training.skills.echo import Echo
from training.skills.paste import Paste
from training.skills.recall import Recall
from training.skills.sheet import Sheet
from training.skills.shopping import Shopping
from training.skills.story import Story
from training.skills.table import Table
from training.skills.talk import Talk, World
from training.skills.toolbox import Toolbox

Scene = Callable[[Draw], Chat]
Mix = list[tuple[float, Skill]]


def make_chat(draw: Draw) -> Chat:
    """A conversation of any kind, with at least one turn."""
    while True:
        chat = draw.weighted(list(SCENES), list(SCENES.values()))(draw)
        if draw.chance(0.12) and chat.messages:
            Closing(draw, chat).step()
        if chat.messages:
            return chat


def remembering(draw: Draw) -> Chat:
    """Facts, told and asked for, with other things in between. Every so often it goes on for very long."""
    chat = _plain_chat(draw)
    recall = Recall(draw, chat)
    recall.tell()
    turns = draw.weighted(((1, 3), (3, 12), (12, 32), (40, 80)), (20, 45, 22, 5))
    play(
        draw,
        turns,
        [(70, recall), (9, World(draw, chat)), (9, Talk(draw, chat)), (7, Shopping(draw, chat)), (5, Echo(draw, chat))],
    )
    return chat


def looking_up(draw: Draw) -> Chat:
    """A list in the system prompt or in the first message."""
    chat = Chat()
    table = Table(draw, chat, draw.pick((4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60)))
    if draw.chance(0.7):
        chat.system = table.system()
    else:
        first = table.question()
        lead = draw.pick(("", "Here is a list:\n"))
        chat.turn(f"{lead}{table.text()}\n\n{first.ask}", first.answer, first.think)
    play(draw, (2, 8), [(88, table), (6, Recall(draw, chat)), (6, Talk(draw, chat))])
    return chat


def informing(draw: Draw) -> Chat:
    """A fact sheet in the system prompt."""
    chat = Chat()
    sheet = Sheet(draw, chat, draw.number(*draw.weighted(((2, 6), (6, 16), (16, 60)), (50, 30, 20))))
    chat.system = sheet.system()
    play(draw, (1, 7), [(80, sheet), (8, Talk(draw, chat, is_itself=False)), (12, Recall(draw, chat))])
    return chat


def reading(draw: Draw) -> Chat:
    """Texts in the messages themselves."""
    chat = _plain_chat(draw)
    for _ in range(draw.pick((1, 1, 1, 2))):
        play(draw, (1, 4), [(1, Paste(draw, chat))])
    return chat


def using_tools(draw: Draw) -> Chat:
    chat = _plain_chat(draw)
    toolbox = Toolbox(draw, chat, draw.pick((1, 2, 2, 3, 4, 5, 6)))
    play(draw, (2, 6), [(82, toolbox), (10, Talk(draw, chat)), (8, Recall(draw, chat))])
    return chat


def talking(draw: Draw) -> Chat:
    chat = Chat(draw.phrase("system", "casual")) if draw.chance(0.12) else _plain_chat(draw)
    share = draw.pick((15, 40, 40, 85))
    play(
        draw,
        (1, 12),
        [(share, World(draw, chat)), (100 - share, Talk(draw, chat)), (8, Recall(draw, chat)), (4, Story(draw, chat))],
    )
    return chat


def booking(draw: Draw) -> Chat:
    chat = _plain_chat(draw)
    play(draw, (1, 3), [(70, Booking(draw, chat)), (15, Talk(draw, chat)), (15, Recall(draw, chat))])
    return chat


def copying(draw: Draw) -> Chat:
    chat = _plain_chat(draw)
    play(draw, (1, 8), [(80, Echo(draw, chat)), (10, Talk(draw, chat)), (10, Recall(draw, chat))])
    return chat


def mixed(draw: Draw) -> Chat:
    """Everything at once, over one fact sheet and some tools."""
    chat = Chat()
    sheet = Sheet(draw, chat, draw.number(3, 12))
    chat.system = sheet.system()
    toolbox = Toolbox(draw, chat, draw.number(1, 4))
    play(
        draw,
        (5, 20),
        [(30, toolbox), (30, sheet), (25, Recall(draw, chat)), (8, Shopping(draw, chat)), (8, World(draw, chat))],
    )
    return chat


def _plain_chat(draw: Draw) -> Chat:
    return Chat(draw.phrase("system", "plain") if draw.chance(0.4) else "")


def play(draw: Draw, turns: tuple[int, int], mix: Mix) -> None:
    for _ in range(draw.number(*turns)):
        draw.weighted([skill for _, skill in mix], [weight for weight, _ in mix]).step()


SCENES: dict[Scene, float] = {
    remembering: 33,
    looking_up: 28,
    informing: 23,
    reading: 9,
    using_tools: 17,
    talking: 13,
    booking: 5,
    copying: 5,
    mixed: 5,
}
