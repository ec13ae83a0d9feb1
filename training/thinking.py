"""Teaches to think when asked to: with `/think` in the system prompt or in the message, and only then.

The chat template drops the thinking of earlier turns from the prompt. Training on those bare turns would teach the
model not to think, so such a document trains only the turns that do; `Document.only_thinking` says so.
"""

from dataclasses import dataclass

from training.chat import Chat, render
from training.draw import Draw

_LONGEST = 240  # characters: a long chain of thought is where a small model begins to loop


@dataclass(frozen=True)
class Document:
    text: str
    only_thinking: bool = False


def finish(draw: Draw, chat: Chat) -> Document:
    """The chat as text, with thinking switched on throughout, for one message, or off."""
    chance = draw.random.random()
    if chance < 0.27:
        return _think_always(draw, chat)
    keep = []
    if chance < 0.30:
        chat.system = f"{chat.system}\n/no_think".lstrip()
    elif chance < 0.34:
        keep = [_ask_to_think(draw, chat)]
    _shorten(draw, chat, keep)
    return Document(render(chat, sort_tools=draw.chance(0.5)))


def _think_always(draw: Draw, chat: Chat) -> Document:
    switch = draw.phrase("system", "think")
    chat.system = chat.system + draw.pick(("\n", " ", "\n\n")) + switch if chat.system else switch
    _shorten(draw, chat, list(range(len(chat.messages))))
    if draw.chance(0.35):
        return Document(render(chat, sort_tools=draw.chance(0.5)))
    _cut(draw, chat)
    return Document(render(chat, keep_thinking=False, sort_tools=draw.chance(0.5)), only_thinking=True)


def _cut(draw: Draw, chat: Chat) -> None:
    """Ends the chat after some turn, so that not always the last one is the one that thinks."""
    questions = [i for i, message in enumerate(chat.messages) if message.role == "user"]
    if len(questions) > 4 and draw.chance(0.7):
        del chat.messages[draw.pick(questions[1:]) :]


def _ask_to_think(draw: Draw, chat: Chat) -> int:
    """Adds the switch to one message; returns the index of the reply that thinks."""
    index = draw.pick([i for i, message in enumerate(chat.messages) if message.role == "user"])
    chat.messages[index].content += draw.pick((" /think", "\n/think"))
    return index + 1


def _shorten(draw: Draw, chat: Chat, thinking: list[int]) -> None:
    """Leaves thoughts only where they are wanted, and none that are long or missing there."""
    for index, message in enumerate(chat.messages):
        if message.role != "assistant" or index not in thinking:
            message.think = ""
        elif not message.think or len(message.think) > _LONGEST:
            message.think = draw.phrase("think", "plain")
