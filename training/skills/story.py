"""Teaches to tell a very short story."""

from training.chat import Chat
from training.draw import Draw, with_article
from training.values import value


class Story:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat

    def step(self) -> None:
        draw = self._draw
        hero = with_article(draw.word("hero"))
        name = value(draw, "first_name")
        ask = draw.pick(
            (f"Tell me a story about {hero}.", f"Can you write a story about {hero}?", f"I'd like a story with {hero}.")
        )
        self._chat.turn(ask, self._tell(hero, name), f"I will tell a short story about {hero}.")
        self._chat.topics.append(hero)

    def _tell(self, hero: str, name: str) -> str:
        draw = self._draw
        home, wish = draw.word("story_place"), draw.word("wish")
        parts = (
            (
                f"Once upon a time, {hero} called {name} lived {home}.",
                f"Long ago, {home}, there lived {hero} called {name}.",
            ),
            (f"More than anything, {name} wanted to {wish}.", f"One morning, {name} decided to {wish}."),
            (f"But then {draw.word('trouble')}.", f"On the way, {draw.word('trouble')}."),
            (
                f"Luckily, {draw.word('friend')} {draw.word('help')}.",
                f"Then {draw.word('friend')} {draw.word('help')}.",
            ),
            (f"Thanks to this help, {name} was able to {wish}.", f"So {name} did not give up and managed to {wish}."),
        )
        return " ".join(draw.pick(choices) for choices in parts) + " " + draw.word("ending")
