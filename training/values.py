"""Values by kind: names, codes, times, prices, things. What a kind is called here is what the TOML files say."""

import json
from collections.abc import Callable
from functools import cache

from training.coined import coined, coined_name, coined_phrase, coined_title, rare_words
from training.content import HERE
from training.draw import Draw, capitalised, with_article

Make = Callable[[Draw], str]

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_NAMES = {"first_name", "surname", "city", "pet_name", "bot_name"}  # a made-up one is as good
_CAPITALISED = {"language", "cuisine"}
_THINGS = ("hobby", "food", "drink", "animal", "object", "grocery", "instrument", "colour", "favourite_sport")


def value(draw: Draw, kind: str) -> str:
    """One value of a kind. Every so often one that no list has."""
    novel = draw.chance(draw.content.novelty)
    if kind in _NAMES:
        return coined_name(draw) if novel else draw.word(kind)
    if kind in draw.content.words and kind not in _KINDS:
        if novel and kind in _CAPITALISED:
            return coined_name(draw)
        is_open = kind not in draw.content.words["closed"] and draw.chance(0.6)
        return _novel(draw, kind) if novel and is_open else draw.word(kind)
    if kind.startswith("favourite "):
        return _favourite(draw, kind.removeprefix("favourite "), novel)
    if kind.startswith("number "):
        return _number(draw, kind.removeprefix("number "))
    return _KINDS[kind](draw)


def digits(draw: Draw, least: int = 4, most: int = 6) -> str:
    return "".join(draw.pick("0123456789") for _ in range(draw.number(least, most)))


def code(draw: Draw) -> str:
    letters = "".join(draw.pick(_LETTERS) for _ in range(3))
    shapes = (
        letters[:2] + digits(draw, 3, 4),
        letters[0] + digits(draw, 2, 3) + "-" + digits(draw, 2, 3),
        letters + "-" + digits(draw, 3, 4),
    )
    return draw.pick(shapes)


def password(draw: Draw) -> str:
    word = coined(draw) if draw.chance(0.6) and draw.content.novelty else draw.word("password_word")
    return word + digits(draw, 1, 4)


def full_name(draw: Draw) -> str:
    return f"{value(draw, 'first_name')} {value(draw, 'surname')}"


def clock(draw: Draw) -> str:
    minutes = draw.pick(("", "", ":00", ":15", ":30", ":45"))
    return f"{draw.number(1, 12)}{minutes} {draw.pick(('am', 'pm'))}"


def _hour(draw: Draw, half: str) -> str:
    """As opening hours are written: with or without minutes, mostly with its half of the day."""
    minutes = draw.pick(("", "", ":00", ":15", ":30", ":45"))
    return f"{draw.number(5, 11)}{minutes}" + (f" {half}" if draw.chance(0.75) else "")


def date(draw: Draw) -> str:
    return f"{draw.word('month')} {draw.number(1, 28)}"


def event_day(draw: Draw) -> str:
    return draw.word("day") if draw.chance(0.65) else date(draw)


def moment(draw: Draw) -> str:
    day = event_day(draw)
    return draw.pick((f"on {day}", f"at {clock(draw)}", f"on {day} at {clock(draw)}"))


def street(draw: Draw) -> str:
    name = draw.pick((value(draw, "surname"), draw.word("street_word"), draw.word("surname")))
    return f"{draw.number(1, 199)} {name} {draw.pick(('Street', 'Road', 'Lane', 'Avenue'))}"


def thing(draw: Draw) -> str:
    """An adjective and a thing: a shop is full of them."""
    return f"{draw.word('adjective')} {value(draw, 'object')}"


def anything(draw: Draw) -> str:
    """Any noun at all."""
    if draw.chance(draw.content.novelty * 1.5):
        return _novel(draw)
    return draw.word(draw.pick(_THINGS))


def noun(draw: Draw) -> str:
    """A word for a thing somebody may have."""
    if draw.chance(draw.content.novelty * 1.5):
        return draw.pick(rare_words().common)
    return draw.word(draw.pick(("object", "own_thing", "kept_object")))


def phone(draw: Draw) -> str:
    shapes = (
        f"{digits(draw, 3, 3)}-{digits(draw, 4, 4)}",
        f"{digits(draw, 3, 3)} {digits(draw, 3, 3)} {digits(draw, 3, 3)}",
        f"0{digits(draw, 3, 3)} {digits(draw, 5, 6)}",
        digits(draw, 4, 4),
    )
    return draw.pick(shapes)


def place(draw: Draw) -> str:
    shapes = (
        f"{draw.word('beside')} {draw.word('landmark')}",
        f"on the {draw.pick(('first', 'second', 'third', 'fourth', 'fifth', 'ground', 'top'))} floor",
        f"in room {digits(draw, 2, 3)}",
        f"in the {draw.word('inside')}",
        f"at {street(draw)}",
    )
    return draw.pick(shapes)


def venue(draw: Draw) -> str:
    names = (coined_name(draw), draw.word("surname") + "'s", draw.word("venue_word"))
    return f"{draw.pick(names if draw.content.novelty else names[1:])} {draw.word('venue_kind')}"


def title(draw: Draw, kind: str) -> str:
    """A title of a song, a film or an event, or a name of a restaurant, from the real dialogues."""
    if draw.chance(draw.content.novelty):
        return coined_title(draw)
    if draw.content.novelty:
        return draw.pick(_titles()[kind])
    return f"{draw.word('adjective').capitalize()} {capitalised(draw.word('object'))}"


def _novel(draw: Draw, kind: str | None = None) -> str:
    """A word or two; of the two the second may say what kind of thing it is, as in "meadow driver"."""
    rare, other = draw.some(rare_words().common, 2)
    made_up, joined = coined(draw), rare[:7] + other[:7]
    like_its_kind = draw.word(kind or draw.pick(_THINGS)).split()[-1]
    two = f"{draw.pick((draw.word('adjective'), rare))} {draw.pick((other, made_up, like_its_kind))}"
    return draw.pick((rare, rare, two, two, made_up, joined))


def _favourite(draw: Draw, kind: str, novel: bool) -> str:
    words = draw.content.words
    name = kind if kind in words else f"favourite_{kind}"
    if name not in words or novel:
        return _novel(draw) if draw.content.novelty else anything(draw)
    return draw.word(name)


def _number(draw: Draw, name: str) -> str:
    if "password" in name:
        return password(draw)
    if "phone" in name:
        return phone(draw)
    return code(draw) if draw.chance(0.4) else digits(draw, 3, 6)


def _passcode(draw: Draw) -> str:
    return draw.pick((password, password, code, digits))(draw)


def _money(draw: Draw) -> str:
    amount = draw.number(1, 250)
    cents = draw.pick(("25", "50", "99"))
    return draw.pick((f"${amount}", f"{amount} dollars", f"{amount} euros", f"${amount}.{cents}"))


def _email(draw: Draw) -> str:
    place = coined(draw) if draw.chance(draw.content.novelty * 1.5) else draw.word("venue_word")
    return f"{password(draw)}@{place.lower().replace(' ', '')}.example"


def _task(draw: Draw) -> str:
    if draw.chance(draw.content.novelty):
        return f"{draw.word('tool_verb')} {coined_phrase(draw)}"
    name, item = value(draw, "first_name"), value(draw, "grocery")
    return draw.pick((f"buy {item}", f"call {name}", f"write to {name}", draw.word("errand"), f"fix the {thing(draw)}"))


def _news(draw: Draw) -> str:
    if draw.chance(draw.content.novelty * 1.2):
        return coined_phrase(draw)
    name = value(draw, "first_name")
    shapes = (
        draw.word("report"),
        f"see you at {clock(draw)}",
        f"the meeting is on {draw.word('day')}",
        f"{name} likes {anything(draw)}",
        f"the code is {digits(draw)}",
        f"I am in {value(draw, 'city')}",
    )
    return draw.pick(shapes)


def _appointment(draw: Draw) -> str:
    name = value(draw, "first_name")
    if draw.chance(draw.content.novelty * 0.8):
        return draw.pick((coined_phrase(draw), with_article(_novel(draw)), f"{_novel(draw)} with {name}"))
    return draw.pick((f"lunch with {name}", f"dinner with {name}", f"a call with {name}", draw.word("event")))


def _sentence(draw: Draw) -> str:
    if draw.chance(draw.content.novelty * 1.2):
        return coined_phrase(draw)
    return draw.pick((draw.word("phrase"), f"I like {anything(draw)}", f"my name is {value(draw, 'first_name')}"))


def _headline(draw: Draw) -> str:
    city, animal = value(draw, "city"), draw.word("animal")
    return draw.pick((f"{city} plans a new park", f"{full_name(draw)} wins a prize", f"Rare {animal} in {city}"))


def _number_between(low: int, high: int) -> Make:
    return lambda draw: str(draw.number(low, high))


@cache
def _titles() -> dict[str, list[str]]:
    titles: dict[str, list[str]] = json.loads((HERE / "data" / "titles.json").read_text())
    return titles


_KINDS: dict[str, Make] = {
    "age": _number_between(6, 95),
    "amount": _number_between(1, 900),
    "anything": anything,
    "appointment": _appointment,
    "book": lambda draw: draw.word("book") if draw.chance(0.4) else title(draw, "movie_name"),
    "car": lambda draw: f"{draw.word('colour')} {draw.word('vehicle')}",
    "clock": clock,
    "code": code,
    "count": _number_between(2, 400),
    "date": date,
    "decimal": lambda draw: f"{draw.number(2, 900)}.{draw.number(10, 99)}",
    "die": lambda draw: draw.pick(("4", "6", "8", "10", "12", "20", "100")),
    "digits": digits,
    "duration": lambda draw: f"{draw.number(2, 90)} {draw.pick(('days', 'hours', 'weeks', 'minutes'))}",
    "email": _email,
    "evening": lambda draw: _hour(draw, "pm"),
    "event_day": event_day,
    "event_title": lambda draw: title(draw, "event_name"),
    "file": lambda draw: f"{draw.pick((coined(draw), draw.pick(rare_words().common)))}.{draw.word('file_ending')}",
    "film": lambda draw: title(draw, "movie_name"),
    "flight": lambda draw: draw.word("airline") + digits(draw, 3, 4),
    "foreign": lambda draw: f"{coined(draw)} {coined(draw)}",
    "full_name": full_name,
    "headline": _headline,
    "height": lambda draw: f"{draw.number(120, 205)} cm",
    "minutes": _number_between(1, 90),
    "moment": moment,
    "money": _money,
    "morning": lambda draw: _hour(draw, "am"),
    "news": _news,
    "noun": noun,
    "passcode": _passcode,
    "phone": phone,
    "place": place,
    "price": lambda draw: f"${draw.number(2, 300)}",
    "restaurant": lambda draw: title(draw, "restaurant_name"),
    "room": lambda draw: digits(draw, 2, 3),
    "sentence": _sentence,
    "shoe_size": _number_between(34, 47),
    "small_amount": _number_between(1, 20),
    "song": lambda draw: title(draw, "track"),
    "spot": lambda draw: draw.pick("ABCDEFGH") + digits(draw, 1, 2),
    "street": street,
    "symbol": lambda draw: "".join(draw.pick(_LETTERS) for _ in range(draw.number(3, 4))),
    "task": _task,
    "team": lambda draw: f"the {value(draw, 'city')} {draw.word('team')}",
    "temperature": _number_between(-10, 38),
    "thing": thing,
    "true": lambda _: "true",
    "venue": venue,
    "venue_name": lambda draw: draw.pick((coined_name(draw), draw.word("venue_word"))),
    "warmth": _number_between(15, 26),
    "wording": coined_phrase,
    "year": _number_between(1790, 2024),
}
