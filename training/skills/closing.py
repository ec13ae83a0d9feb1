"""Teaches how conversations end: a title, a summary."""

from training.chat import Chat
from training.draw import Draw, capitalised, joined


class Closing:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat

    def step(self) -> None:
        topics = list(dict.fromkeys(self._chat.topics))[:3] or ["small talk"]
        if self._draw.chance(0.6):
            title = " and ".join(capitalised(topic) for topic in topics[:2])
            self._chat.turn(self._draw.phrase("closing", "title"), title, "A short title about the main topic.")
        else:
            summary = f"We talked about {joined(topics)}."
            self._chat.turn(self._draw.phrase("closing", "summary"), summary, "I name the main points.")
