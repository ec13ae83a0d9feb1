"""Teaches to take a booking: ask for each missing detail once, repeat them all, and remember them."""

from training.chat import Chat
from training.content import Table as Row
from training.draw import Draw, fill
from training.values import code, value

_CONFIRM = ("Shall I book it?", "Is that right?", "Should I go ahead?")
_YES = ("Yes, please.", "Yes.", "Yes, that is right.", "Please do.", "Go ahead.", "Sounds good.", "Correct.", "yes")
_NO = ("No, forget it.", "No, thanks.", "Not now.", "I changed my mind.")


class Booking:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat

    def step(self) -> None:
        draw = self._draw
        row = draw.pick(draw.content.bookings)
        details = {name: value(draw, kind) for name, (_, kind, _) in row["details"].items()}
        names = list(details)
        given = draw.some(names, draw.number(0, len(names)))
        self._gather(row, details, [name for name in names if name in given])
        self._chat.topics.append(row["thing"])

    def _gather(self, row: Row, details: dict[str, str], given: list[str]) -> None:
        """One message after the other until nothing is missing; then the confirmation."""
        draw = self._draw
        wanted = fill(draw.pick(row["wants"]), {"cuisine": draw.word("cuisine")})
        message = wanted + "".join(fill(row["details"][name][2], {"v": details[name]}) for name in given)
        message += "?" if message.startswith("Can") else "."
        missing = [name for name in details if name not in given]
        for name in missing:
            lead = draw.pick(("", "", "Sure. ", "Okay. ", "Of course. "))
            self._chat.turn(message, lead + row["details"][name][0], f"I still need this: {name}.")
            message = self._reply(row["details"][name][2], details[name])
        self._confirm(row, details, message)

    def _reply(self, form: str, detail: str) -> str:
        sentence = fill(form, {"v": detail}).strip(" ,")
        return self._draw.pick((detail, detail, sentence[0].upper() + sentence[1:] + ".", f"{detail}, please."))

    def _confirm(self, row: Row, details: dict[str, str], message: str) -> None:
        draw = self._draw
        order = row["thing"] + "".join(fill(row["details"][name][2], {"v": detail}) for name, detail in details.items())
        self._chat.turn(message, f"I have {order}. {draw.pick(_CONFIRM)}", "Now I have all details.")
        if not draw.chance(0.85):
            self._chat.turn(draw.pick(_NO), "Okay, I did not book anything.", "The user does not want it.")
            return
        number = code(draw)
        self._chat.turn(draw.pick(_YES), f"Done! I booked {order}. Your booking code is {number}.", "The user agrees.")
        if draw.chance(0.6):
            self._ask_again(row, details, number)

    def _ask_again(self, row: Row, details: dict[str, str], number: str) -> None:
        draw = self._draw
        name = draw.pick(list(details))
        question, _, form = row["details"][name]
        if draw.chance(0.4):
            ask = draw.pick(
                ("What is my booking code?", "What was the booking code?", "Can you repeat my booking code?")
            )
            self._chat.turn(ask, f"Your booking code is {number}.", f"The code was {number}.")
        else:
            order = fill(form, {"v": details[name]}).strip(" ,")
            ask = draw.pick((f"What did I say? {question}", f"Remind me: {question[0].lower()}{question[1:]}"))
            self._chat.turn(ask, f"You said {order}.", f"The user said {order}.")
