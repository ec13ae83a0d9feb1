"""What clients do, as scripts of tokens: conversations whose later prompts hold the replies of the earlier ones.

A script is a generator of steps that is sent each step's reply. It is the same for the same seed and the same replies.
`play` runs one against any server and counts what no server could have avoided to read.

    message            [OPEN role mark newline) text [CLOSE newline)
    generation prompt  [OPEN assistant mark newline)
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from leftoff.types import MessageSpan, Prompt, Tokens

_ROLES = {"system": 2, "user": 3, "assistant": 4, "tool": 5}
_OPEN, _CLOSE, _MARK, _NEWLINE = 0, 1, 6, 7
_FIRST_WORD = 8


@dataclass(frozen=True)
class Step:
    """One request: a prompt, and how many tokens are wanted."""

    prompt: Prompt
    num_reply: int


@dataclass(frozen=True)
class Served:
    """What a server did for a step."""

    reply: Tokens
    computed: int


Script = Generator[Step, Tokens, None]


class Writer:
    """Makes up texts of about the wanted length. `scale` shortens everything, for engines that really compute."""

    def __init__(self, seed: int, vocabulary: int = 30_000, scale: float = 1.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._vocabulary = vocabulary
        self._scale = scale

    def text(self, shortest: int, longest: int | None = None) -> Tokens:
        size = self.length(shortest, longest)
        return self._rng.integers(_FIRST_WORD, self._vocabulary, size).astype(np.int32)

    def length(self, shortest: int, longest: int | None = None) -> int:
        return max(4, int(self._scale * self._rng.integers(shortest, (longest or shortest) + 1)))


@dataclass(frozen=True)
class Chat:
    """A conversation, never changed: what is said next makes another one."""

    said: tuple[tuple[str, Tokens], ...] = ()

    def say(self, role: str, text: Tokens) -> "Chat":
        return Chat((*self.said, (role, text)))

    def prompt(self) -> Prompt:
        pieces, messages, end = [], [], 0
        for role, text in self.said:
            pieces += [_opening(role), text, np.array([_CLOSE, _NEWLINE], np.int32)]
            start, end = end, end + text.size + 6
            messages.append(MessageSpan(role, start, end))
        return Prompt(np.concatenate([*pieces, _opening("assistant")]), tuple(messages))


def _opening(role: str) -> Tokens:
    return np.array([_OPEN, _ROLES[role], _MARK, _NEWLINE], np.int32)


def linear(writer: Writer, num_turns: int = 12) -> Script:
    """A chat that only grows."""
    chat = Chat().say("system", writer.text(300, 800))
    for _ in range(num_turns):
        chat = chat.say("user", writer.text(30, 200))
        reply = yield Step(chat.prompt(), writer.length(30, 120))
        chat = chat.say("assistant", reply)


def shortened(writer: Writer) -> Script:
    """The client keeps only the beginning of one reply: it was stopped, or its end was trimmed."""
    chat = Chat().say("system", writer.text(300, 800))
    for turn in range(8):
        chat = chat.say("user", writer.text(100, 200))
        num_reply = writer.length(120)
        reply = yield Step(chat.prompt(), num_reply)
        chat = chat.say("assistant", reply[: 3 * num_reply // 4] if turn == 4 else reply)


def agents(writer: Writer, num_agents: int = 4) -> Script:
    """Several agents under one header take turns."""
    header = Chat().say("system", writer.text(800))
    chats = [header.say("user", writer.text(100, 200)) for _ in range(num_agents)]
    for _ in range(4):
        for number, chat in enumerate(chats):
            reply = yield Step(chat.prompt(), writer.length(30, 100))
            chats[number] = chat.say("assistant", reply).say("user", writer.text(30, 200))


def edit_and_return(writer: Writer) -> Script:
    """An old message is written anew, the talk goes on from there; then the first branch goes on after all."""
    chat = Chat().say("system", writer.text(300, 800))
    chats = []
    for _ in range(6):
        chat = chat.say("user", writer.text(100, 200))
        chats.append(chat)
        reply = yield Step(chat.prompt(), writer.length(50, 100))
        chat = chat.say("assistant", reply)
    edited = Chat(chats[2].said[:-1]).say("user", writer.text(100, 200))
    for _ in range(3):
        reply = yield Step(edited.prompt(), writer.length(50, 100))
        edited = edited.say("assistant", reply).say("user", writer.text(100, 200))
    for branch in (chat.say("user", writer.text(100, 200)), edited, chat.say("user", writer.text(100, 200))):
        yield Step(branch.prompt(), writer.length(50, 100))


def regenerate(writer: Writer) -> Script:
    """The same prompt again, until the reply pleases."""
    chat = Chat().say("system", writer.text(300, 800))
    for num_tries in (1, 3, 2, 1):
        chat = chat.say("user", writer.text(30, 200))
        for _ in range(num_tries):
            reply = yield Step(chat.prompt(), writer.length(50, 150))
        chat = chat.say("assistant", reply)


def title_between(writer: Writer) -> Script:
    """After the first turn the client asks for a title, under another header, and quotes the chat."""
    chat = Chat().say("system", writer.text(300, 800))
    asking = Chat().say("system", writer.text(300))
    for turn in range(6):
        question = writer.text(30, 200)
        chat = chat.say("user", question)
        reply = yield Step(chat.prompt(), writer.length(50, 150))
        chat = chat.say("assistant", reply)
        if turn in (0, 3):
            yield Step(asking.say("user", np.concatenate([question, reply])).prompt(), writer.length(10))


def tool_loop(writer: Writer) -> Script:
    """One question, and many calls whose results come back as messages."""
    chat = Chat().say("system", writer.text(800)).say("user", writer.text(100, 200))
    for _ in range(12):
        reply = yield Step(chat.prompt(), writer.length(30, 60))
        chat = chat.say("assistant", reply).say("tool", writer.text(50, 200))


def document(writer: Writer) -> Script:
    """One long document, and questions about it that follow it in the same message."""
    header, text = Chat().say("system", writer.text(300)), writer.text(3000)
    for _ in range(6):
        question = np.concatenate([text, writer.text(300, 600)])
        yield Step(header.say("user", question).prompt(), writer.length(50, 100))


SCRIPTS: dict[str, Callable[[Writer], Script]] = {
    "12 turns": linear,
    "shortened reply": shortened,
    "4 agents": agents,
    "edit and return": edit_and_return,
    "regenerate": regenerate,
    "title between turns": title_between,
    "tool loop": tool_loop,
    "document": document,
}


@dataclass
class Account:
    """[0 ·· shown by an earlier request ·· )[ ·· unavoidable ·· ), summed over the requests of a script."""

    num_requests: int = 0
    prompt_tokens: int = 0
    unavoidable: int = 0
    computed: int = 0

    @property
    def ratio(self) -> float:
        return self.computed / self.unavoidable


def play(script: Script, serve: Callable[[Step], Served]) -> Account:
    """Runs a script to its end. What was shown is every earlier prompt with its reply."""
    account = Account()
    shown: list[Tokens] = []
    step = next(script, None)
    while step is not None:
        tokens = step.prompt.tokens
        served = serve(step)
        account.num_requests += 1
        account.prompt_tokens += tokens.size
        account.unavoidable += int(tokens.size) - max((_common(tokens, earlier) for earlier in shown), default=0)
        account.computed += served.computed
        shown.append(np.concatenate([tokens, served.reply]))
        try:
            step = script.send(served.reply)
        except StopIteration:
            step = None
    return account


def _common(left: Tokens, right: Tokens) -> int:
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size
