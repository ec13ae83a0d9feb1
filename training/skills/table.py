"""Teaches to look things up in a list: products, staff, trains and so on, in every form lists are written."""

from dataclasses import dataclass

from training.chat import Chat, dumped
from training.draw import Draw, capitalised
from training.phrasing import asked
from training.values import value

Row = dict[str, str]

# title: the columns with their kinds of value; the first column names the row
_KINDS: dict[str, dict[str, str]] = {
    "product list": {"product": "thing", "price": "price", "stock": "count", "aisle": "small_amount"},
    "staff directory": {"name": "full_name", "role": "job", "room": "room", "phone": "digits"},
    "train timetable": {"train": "code", "destination": "city", "departure": "clock", "platform": "small_amount"},
    "menu": {"dish": "food", "price": "price", "number": "small_amount"},
    "library catalogue": {"book": "book", "author": "full_name", "shelf": "spot"},
    "guest list": {"guest": "full_name", "room": "room", "check-out": "day"},
    "event calendar": {"event": "event_title", "date": "date", "place": "city", "start": "clock"},
    "order list": {"order": "digits", "customer": "full_name", "item": "thing", "status": "order_status"},
    "contact list": {"name": "first_name", "city": "city", "phone": "phone", "birthday": "date"},
    "animal shelter": {"animal": "pet_name", "species": "animal", "age": "small_amount", "cage": "spot"},
    "movie programme": {"movie": "film", "hall": "small_amount", "time": "clock", "price": "price"},
    "lookup table": {"key": "noun", "value": "anything"},
    "code table": {"word": "noun", "code": "code"},
    "club members": {"member": "full_name", "hobby": "hobby", "drink": "drink", "since": "year"},
    "garden plan": {"plant": "noun", "bed": "spot", "water": "duration"},
}
_CONFUSABLE = 0.6  # share of lists in which names and things have words in common
_NOT_TELLING = ("price", "stock", "age", "number", "aisle", "hall", "platform")


@dataclass(frozen=True)
class Question:
    """`want` is what the answer must contain; empty if the list does not say."""

    ask: str
    answer: str
    think: str
    want: str


class Table:
    """A list of some kind, and questions about it."""

    def __init__(self, draw: Draw, chat: Chat, num_rows: int) -> None:
        self._draw, self._chat = draw, chat
        self.title = draw.pick(sorted(_KINDS))
        self._columns = _KINDS[self.title]
        self._key, *self._fields = self._columns
        source = draw.narrowed(12) if draw.chance(_CONFUSABLE) else draw
        rows = ({column: value(source, kind) for column, kind in self._columns.items()} for _ in range(num_rows))
        self._rows = list({row[self._key].lower(): row for row in rows}.values())
        chat.topics.append(self.title)

    def text(self) -> str:
        layouts = (self._bullets, self._pairs, self._csv, self._markdown, self._json, self._numbered)
        return self._draw.weighted(layouts, (30, 20, 15, 15, 10, 10))()

    def system(self) -> str:
        return capitalised(self._draw.phrase("table", "intro", title=self.title)) + "\n\n" + self.text()

    def step(self) -> None:
        question = self.question()
        self._chat.turn(question.ask, question.answer, question.think)

    def question(self) -> Question:
        chance = self._draw.random.random()
        if chance < 0.1:
            return self._missing()
        row, field = self._draw.pick(self._rows), self._draw.pick(self._fields)
        if chance < 0.25 and field not in _NOT_TELLING and [r[field] for r in self._rows].count(row[field]) == 1:
            return self._backwards(row, field)
        if chance < 0.33 and len(self._fields) > 1:
            return self._whole(row)
        return self.forwards(row, field)

    def any_forwards(self) -> Question:
        return self.forwards(self._draw.pick(self._rows), self._draw.pick(self._fields))

    def forwards(self, row: Row, field: str) -> Question:
        key, found = row[self._key], row[field]
        slots = {"field": field, "key": key, "value": found}
        ask, answer = (self._draw.phrase("table", name, **slots) for name in ("ask", "answer"))
        ask = asked(self._draw, ask, 0.1) if self._draw.chance(0.3) else ask
        return Question(ask, answer, f"I look for {key} in the list. The {field} is {found}.", found)

    def _backwards(self, row: Row, field: str) -> Question:
        slots = {"column": self._key, "field": field, "value": row[field], "key": row[self._key]}
        ask, answer = (self._draw.phrase("table", name, **slots) for name in ("find", "found"))
        return Question(ask, answer, f"The entry with {field} {row[field]} is {row[self._key]}.", row[self._key])

    def _whole(self, row: Row) -> Question:
        key = row[self._key]
        details = ", ".join(f"{field} {row[field]}" for field in self._fields)
        ask = self._draw.phrase("table", "all", key=key)
        return Question(ask, f"{capitalised(key)}: {details}.", f"I found the entry of {key}.", details)

    def _missing(self) -> Question:
        key = value(self._draw, self._columns[self._key])
        if key.lower() in {row[self._key].lower() for row in self._rows}:
            return self.any_forwards()
        ask = self._draw.phrase("table", "ask", field=self._draw.pick(self._fields), key=key, value="")
        return Question(ask, self._draw.phrase("table", "missing", key=key), f"{key} is not in the list.", "")

    # --- how a list is written

    def _bullets(self) -> str:
        return "\n".join(
            f"- {row[self._key]}: " + ", ".join(f"{f} {row[f]}" for f in self._fields) for row in self._rows
        )

    def _pairs(self) -> str:
        return "\n".join("; ".join(f"{column}: {text}" for column, text in row.items()) for row in self._rows)

    def _csv(self) -> str:
        return "\n".join(",".join(line) for line in (self._columns, *(row.values() for row in self._rows)))

    def _markdown(self) -> str:
        lines = ("| " + " | ".join(line) + " |" for line in (self._columns, *(row.values() for row in self._rows)))
        head, *rest = lines
        return "\n".join((head, "|" + "---|" * len(self._columns), *rest))

    def _json(self) -> str:
        return "\n".join(dumped(row) for row in self._rows)

    def _numbered(self) -> str:
        details = (", ".join(f"{field}: {row[field]}" for field in self._fields) for row in self._rows)
        return "\n".join(
            f"{i}. {row[self._key]} ({text})" for i, (row, text) in enumerate(zip(self._rows, details, strict=True), 1)
        )
