"""Four conversations over one header, killed as soon as the disk has their ends: each goes on at its last message."""

import time
from pathlib import Path

from tests.cli.running import serving
from tests.disk.remains import Remains
from tests.patience import PATIENCE_S
from tests.server.crowd import connected
from tests.server.wire import Answer, MessageDict, Texts, Wire, says

NUM_TURNS = 2
REPLY_TOKENS = 12
GENERATION_TOKENS = 16  # of the generation prompt, at most: it is not part of the next prompt


def talk(wire: Wire, chats: list[list[MessageDict]]) -> list[Answer]:
    """All four in turn, a few times; returns their last answers."""
    texts = Texts(9)
    for _ in range(NUM_TURNS):
        answers = []
        for chat in chats:
            chat.append(says("user", texts.text(60)))
            answers.append(wire.chat(chat, REPLY_TOKENS))
            chat.append(says("assistant", answers[-1].text))
    return answers


def has_ends(remains: Remains, wire: Wire, chats: list[list[MessageDict]], answers: list[Answer]) -> bool:
    """The index has everything to resume each conversation after its last question."""
    return all(
        remains.resumable(wire.prompt([*chat, says("user", "?")])) >= answer.prompt_tokens - GENERATION_TOKENS
        for chat, answer in zip(chats, answers, strict=True)
    )


def test_after_a_kill_each_conversation_goes_on_at_its_last_message(tmp_path: Path) -> None:
    texts = Texts(8)
    header = says("system", texts.text(200))
    chats = [[header, says("user", texts.text(200)), says("assistant", texts.text(20))] for _ in range(4)]
    flags = ("--ctx", "4096", "--slots", "2", "--disk", "64", "--cache-dir", str(tmp_path))
    with serving(*flags) as server, connected(server.url) as http:
        wire = Wire(http)
        answers = talk(wire, chats)
        deadline = time.monotonic() + PATIENCE_S
        while not has_ends(Remains(tmp_path), wire, chats, answers):
            assert time.monotonic() < deadline, "it does not write the ends of conversations"
        server.process.kill()
        server.process.wait()
    with serving(*flags) as server, connected(server.url) as http:
        for chat, answer in zip(chats, answers, strict=True):
            again = Wire(http).chat([*chat, says("user", texts.text(10))], 1)
            assert again.cached >= answer.prompt_tokens - GENERATION_TOKENS
            assert again.computed <= again.prompt_tokens - answer.prompt_tokens + GENERATION_TOKENS
