"""Teaches to copy: words never met before, the user's messages, its own."""

from collections.abc import Callable

from training.chat import Chat
from training.coined import coined, coined_name, coined_phrase, coined_title, rare_words
from training.draw import Draw, capitalised
from training.values import anything, code, digits, value

_LONGEST = 150


class Echo:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat

    def step(self) -> None:
        steps = (self._repeat, self._quote_it, self._spell, self._first, self._last, self._again)
        self._draw.weighted(steps, (50, 25, 12, 8, 8, 8))()

    def _repeat(self) -> None:
        draw = self._draw
        makers: tuple[Callable[[], str], ...] = (
            lambda: draw.pick(rare_words().common),
            lambda: draw.pick(rare_words().proper),
            lambda: coined(draw),
            lambda: capitalised(coined(draw)),
            lambda: value(draw, "grocery"),
            lambda: draw.pick((code, digits))(draw),
            lambda: coined_phrase(draw),
        )
        words = [draw.pick(makers)() for _ in range(draw.number(1, 8))]
        text = draw.pick((" ", " ", ", ")).join(words)
        self._chat.turn(draw.phrase("echo", "repeat", text=text), text, "I just repeat the text.")

    def _quote_it(self) -> None:
        """In quotation marks no space stands before the first word: its token is another one."""
        draw = self._draw
        makers: tuple[Callable[[Draw], str], ...] = (coined_phrase, coined_title, coined_name, coined, anything)
        text = draw.pick(makers)(draw)
        ask, reply = draw.pick(draw.content.phrases["echo"]["quoted"]).split("|")
        self._chat.turn(ask.replace("{text}", text), reply.replace("{text}", text), "I copy the text as it is.")

    def _spell(self) -> None:
        word = self._draw.pick((coined(self._draw), self._draw.pick(rare_words().common)))
        self._chat.turn(
            self._draw.phrase("echo", "spell", text=word), "-".join(word.upper()) + ".", "Letter by letter."
        )

    def _first(self) -> None:
        self._quote("first", self._chat.said("user")[:1], 'Your first message was: "{}"')

    def _last(self) -> None:
        self._quote("last", self._chat.said("user")[-1:], 'You said: "{}"')

    def _again(self) -> None:
        self._quote("again", self._chat.said("assistant")[-1:], "Of course: {}")

    def _quote(self, ask: str, texts: list[str], form: str) -> None:
        if texts and 0 < len(texts[0]) < _LONGEST:
            self._chat.turn(self._draw.phrase("echo", ask), form.format(texts[0]), "I look for that message.")
