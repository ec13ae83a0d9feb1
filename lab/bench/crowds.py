"""What several clients do to one server, each as a script."""

from lab.bench.ask import Ask, Messages, Script, says
from lab.bench.texts import Texts


def agents(texts: Texts) -> Script:
    """Four agents under one header take turns."""
    header = says("system", texts.text(1000))
    chats: list[Messages] = [[header, says("user", texts.question(150, 300))] for _ in range(4)]
    for _ in range(5):
        for number, chat in enumerate(chats):
            (reply,) = yield [Ask(chat, texts.reply(40))]
            chats[number] = [*chat, reply.message, says("user", texts.question(100, 250))]


def subagents(texts: Texts) -> Script:
    """Six agents start at the same moment under one long header, and go on together."""
    header = says("system", texts.text(2500))
    chats: list[Messages] = [[header, says("user", texts.question(60, 150))] for _ in range(6)]
    for _ in range(3):
        replies = yield [Ask(chat, texts.reply(32)) for chat in chats]
        chats = [
            [*chat, reply.message, says("user", texts.question(60, 150))]
            for chat, reply in zip(chats, replies, strict=True)
        ]


def many_chats(texts: Texts) -> Script:
    """Sixteen chats under one header take turns: more than the RAM would hold as whole copies."""
    header = says("system", texts.text(1000))
    chats: list[Messages] = [[header, says("user", texts.question(150, 250))] for _ in range(16)]
    for _ in range(3):
        for number, chat in enumerate(chats):
            (reply,) = yield [Ask(chat, texts.reply(16))]
            chats[number] = [*chat, reply.message, says("user", texts.question(60, 120))]
