"""What clients do, as scripts of chats in text: the same as `tests/cache/scripts.py`, for a server.

A script is a generator of asks that is sent the text of each reply.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from leftoff.core import Tokens
from tests.api.wire import MessageDict, Texts, ToolDict, Wire, says


@dataclass(frozen=True)
class Ask:
    """One request, and how many tokens its reply has."""

    messages: list[MessageDict]
    num_reply: int
    tools: list[ToolDict] | None = None


Script = Generator[Ask, str, None]


def linear(texts: Texts) -> Script:
    """A chat that only grows."""
    chat = [says("system", texts.text(300, 800))]
    for _ in range(12):
        chat = [*chat, says("user", texts.text(30, 200))]
        reply = yield Ask(chat, texts.length(20, 40))
        chat = [*chat, says("assistant", reply)]


def shortened(texts: Texts) -> Script:
    """The client keeps only the beginning of one reply: it was stopped, or its end was trimmed."""
    chat = [says("system", texts.text(300, 800))]
    for turn in range(8):
        chat = [*chat, says("user", texts.text(100, 200))]
        reply = yield Ask(chat, 60)
        chat = [*chat, says("assistant", _first_words(reply, 45) if turn == 4 else reply)]


def agents(texts: Texts) -> Script:
    """Several agents under one header take turns."""
    header = says("system", texts.text(800))
    chats = [[header, says("user", texts.text(100, 200))] for _ in range(4)]
    for _ in range(4):
        for number, chat in enumerate(chats):
            reply = yield Ask(chat, texts.length(20, 40))
            chats[number] = [*chat, says("assistant", reply), says("user", texts.text(30, 200))]


def edit_and_return(texts: Texts) -> Script:
    """An old message is written anew, the talk goes on from there; then the first branch goes on after all."""
    chat = [says("system", texts.text(300, 800))]
    chats = []
    for _ in range(6):
        chat = [*chat, says("user", texts.text(100, 200))]
        chats.append(chat)
        reply = yield Ask(chat, texts.length(20, 40))
        chat = [*chat, says("assistant", reply)]
    edited = [*chats[2][:-1], says("user", texts.text(100, 200))]
    for _ in range(3):
        reply = yield Ask(edited, texts.length(20, 40))
        edited = [*edited, says("assistant", reply), says("user", texts.text(100, 200))]
    goes_on, goes_on_otherwise = ([*chat, says("user", texts.text(100, 200))] for _ in range(2))
    for branch in (goes_on, edited, goes_on_otherwise):
        yield Ask(branch, texts.length(20, 40))


def regenerate(texts: Texts) -> Script:
    """The same prompt again, until the reply pleases."""
    chat = [says("system", texts.text(300, 800))]
    for num_tries in (1, 3, 2, 1):
        chat = [*chat, says("user", texts.text(30, 200))]
        for _ in range(num_tries):
            reply = yield Ask(chat, texts.length(20, 40))
        chat = [*chat, says("assistant", reply)]


def title_between(texts: Texts) -> Script:
    """After the first turn the client asks for a title, under another header, and quotes the chat."""
    chat = [says("system", texts.text(300, 800))]
    asking = says("system", texts.text(300))
    for turn in range(6):
        question = texts.text(30, 200)
        chat = [*chat, says("user", question)]
        reply = yield Ask(chat, texts.length(20, 40))
        chat = [*chat, says("assistant", reply)]
        if turn in (0, 3):
            yield Ask([asking, says("user", question + reply)], 10)


def tool_loop(texts: Texts) -> Script:
    """One question, and many calls whose results come back as messages."""
    tools = [_tool("look_up"), _tool("send_letter")]
    chat = [says("system", texts.text(600)), says("user", texts.text(100, 200))]
    for number in range(12):
        reply = yield Ask(chat, texts.length(20, 40), tools)
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        result = {"role": "tool", "tool_call_id": f"call_{number}", "content": texts.text(50, 200)}
        chat = [*chat, {"role": "assistant", "content": reply, "tool_calls": [call]}, result]


def document(texts: Texts) -> Script:
    """One long document, and questions about it that follow it in the same message."""
    header, text = says("system", texts.text(300)), texts.text(3000)
    for _ in range(6):
        yield Ask([header, says("user", f"{text}\n\n{texts.text(300, 600)}")], texts.length(20, 40))


WORKLOADS: dict[str, Callable[[Texts], Script]] = {
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

    prompt_tokens: int = 0
    unavoidable: int = 0
    computed: int = 0

    @property
    def ratio(self) -> float:
        return self.computed / self.unavoidable


def play(script: Script, wire: Wire) -> Account:
    """Runs a script to its end. What was shown is every earlier prompt with its reply.

    Also the last token of a reply counts as shown, although it was only chosen and never read: one too many per turn.
    """
    account = Account()
    shown: list[Tokens] = []
    ask = next(script, None)
    while ask is not None:
        tokens = wire.prompt(ask.messages, ask.tools)
        answer = wire.chat(ask.messages, ask.num_reply, ask.tools)
        reply = wire.tokens(answer.text)
        assert (tokens.size, reply.size) == (answer.prompt_tokens, ask.num_reply)
        account.prompt_tokens += answer.prompt_tokens
        account.unavoidable += num_new(tokens, shown)
        account.computed += answer.computed
        shown.append(np.concatenate([tokens, reply]))
        try:
            ask = script.send(answer.text)
        except StopIteration:
            ask = None
    return account


def num_new(tokens: Tokens, shown: list[Tokens]) -> int:
    """How many tokens of a prompt no earlier request has shown."""
    return int(tokens.size) - max((_common(tokens, earlier) for earlier in shown), default=0)


def _common(left: Tokens, right: Tokens) -> int:
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size


def _first_words(text: str, number: int) -> str:
    return "".join(f" {word}" for word in text.split()[:number])


def _tool(name: str) -> ToolDict:
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "a tool", "parameters": parameters}}
