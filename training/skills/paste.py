"""Teaches to read a text that stands in the message itself: notes, mails, journeys, passages of an encyclopedia."""

import json
from dataclasses import dataclass
from functools import cache

from training.chat import Chat
from training.content import HERE
from training.draw import Draw, fill, uncapitalised, with_article
from training.phrasing import typed
from training.skills.sheet import make_statements
from training.skills.table import Question
from training.values import clock, place, thing, value, venue


@dataclass(frozen=True)
class Text:
    body: str
    title: str
    summary: str
    questions: tuple[Question, ...]


class Paste:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat
        self._text = make_text(draw)
        self._is_read = False

    def step(self) -> None:
        question = self._question()
        if self._is_read:
            self._chat.turn(typed(self._draw, question.ask), question.answer, question.think)
            return
        self._is_read = True
        lead = self._draw.phrase("paste", "lead")
        if self._draw.chance(0.15):
            self._chat.turn(lead + self._text.body, self._draw.phrase("paste", "wait"), "I wait for the question.")
            return
        after = self._draw.phrase("paste", "question", q=question.ask, l=uncapitalised(question.ask))
        self._chat.turn(lead + self._text.body + after, question.answer, question.think)

    def _question(self) -> Question:
        chance = self._draw.random.random()
        if chance < 0.08:
            return Question(
                self._draw.phrase("paste", "title"), self._text.title, "The main topic gives the title.", ""
            )
        if chance < 0.18:
            return Question(self._draw.phrase("paste", "summary"), self._text.summary, "I say the main point.", "")
        return self._draw.pick(self._text.questions)


def make_text(draw: Draw) -> Text:
    return draw.weighted((_notes, _journey, _mail, _passage), (45, 25, 20, 12))(draw)


def _notes(draw: Draw) -> Text:
    """Facts about a place, as on a fact sheet."""
    name = venue(draw)
    facts = make_statements(draw, draw.number(2, 6) if draw.chance(0.6) else draw.number(6, 25))
    questions = tuple(
        Question(ask, answer, f'{draw.phrase("sheet", "source")}: "{fact.said}"', want)
        for fact in facts
        for ask, answer, want in fact.questions
    )
    body = f"{draw.pick(('Notes from', 'This is', 'News from'))} {name}. " + " ".join(fact.said for fact in facts)
    return Text(body, f"Notes About {name}", f"The text is about {name}. {facts[0].about}", questions)


def _journey(draw: Draw) -> Text:
    who, city, day, food, price = (value(draw, kind) for kind in ("first_name", "city", "day", "food", "price"))
    how = draw.pick(("by train", "by bus", "by car", "by plane", "by boat", "by bike", "on foot"))
    weather, bought, nights = draw.word("weather"), thing(draw), str(draw.number(2, 14))
    home = draw.pick(("a small hotel", "a hostel", "a tent", "a cabin", "a guest house", "a houseboat"))
    sentences = {
        f"On {day}, {who} went to {city} {how}.": (
            (f"Where did {who} go?", f"{who} went to {city}.", city),
            (f"When did {who} go to {city}?", f"{who} went to {city} on {day}.", day),
            (f"How did {who} get to {city}?", f"{who} went to {city} {how}.", how),
            (f"Who went to {city}?", f"{who} went to {city}.", who),
        ),
        f"The weather was {weather}.": (("How was the weather?", f"The weather was {weather}.", weather),),
        f"For dinner, {who} ate {food}.": ((f"What did {who} eat?", f"{who} ate {food}.", food),),
        f"{who} bought {with_article(bought)} for {price}.": (
            (f"What did {who} buy?", f"{who} bought {with_article(bought)}.", bought),
            (f"How much did the {bought} cost?", f"The {bought} cost {price}.", price),
        ),
        f"{who} stayed in {home} for {nights} nights.": (
            (f"Where did {who} stay?", f"{who} stayed in {home}.", home),
            (f"How long did {who} stay?", f"{who} stayed for {nights} nights.", nights),
        ),
    }
    return _text(draw, sentences, f"{who}'s Trip to {city}", f"{who} went to {city} on {day}.")


def _mail(draw: Draw) -> Text:
    sender, reader, item = (value(draw, kind) for kind in ("first_name", "first_name", "grocery"))
    event, (old, new), time, where = (
        draw.word("event"),
        draw.some(draw.content.words["day"], 2),
        clock(draw),
        place(draw),
    )
    sentences = {
        f"Dear {reader},": (("Who is the message for?", f"The message is for {reader}.", reader),),
        f"the {event} is moved from {old} to {new}.": (
            (f"When is the {event} now?", f"The {event} is now on {new}.", new),
            (f"When was the {event} before?", f"The {event} was on {old} before.", old),
            ("What was moved?", f"The {event} was moved.", event),
        ),
        f"It starts at {time}.": (("What time does it start?", f"It starts at {time}.", time),),
        f"We meet {where}.": (("Where do they meet?", f"They meet {where}.", where),),
        f"Please bring {item}.": ((f"What should {reader} bring?", f"{reader} should bring {item}.", item),),
        f"Best wishes, {sender}": (("Who wrote this?", f"{sender} wrote this.", sender),),
    }
    summary = f"{sender} tells {reader} that the {event} is moved from {old} to {new}."
    return _text(draw, sentences, f"The {event} is moved", summary)


def _passage(draw: Draw) -> Text:
    """Quotes from a passage of Wikipedia."""
    topic, passage = draw.pick([pair for pair in _passages() if len(_sentences(pair[1])) > 2])
    sentences = _sentences(passage)
    words = [(word.strip('.,;:"()'), sentence) for sentence in sentences for word in sentence.split() if len(word) > 6]
    unique = [(word, sentence) for word, sentence in words if sum(word in other for other in sentences) == 1]
    asks = ('Which sentence mentions "{w}"?', 'Quote the sentence with the word "{w}".', "Find the sentence about {w}.")
    questions = [Question("What is the first sentence?", sentences[0], "I quote it.", "")]
    questions += [
        Question(fill(draw.pick(asks), {"w": w}), sentence, "I quote the sentence.", "") for w, sentence in unique
    ]
    return Text(" ".join(sentences), topic, f"The text is about {topic}.", tuple(questions))


def _text(draw: Draw, sentences: dict[str, tuple[tuple[str, str, str], ...]], title: str, summary: str) -> Text:
    first, *rest = sentences
    chosen = [first, *(sentence for sentence in rest if draw.chance(0.6))]
    questions = tuple(
        Question(ask, answer, f'{draw.phrase("sheet", "source")}: "{sentence}"', want)
        for sentence in chosen
        for ask, answer, want in sentences[sentence]
    )
    return Text(" ".join(chosen), title, summary, questions)


def _sentences(passage: str) -> list[str]:
    return [part.strip() + "." for part in passage.rstrip(".").split(". ") if 40 < len(part) < 260][:6]


@cache
def _passages() -> list[tuple[str, str]]:
    return [(topic, text) for topic, text in json.loads((HERE / "data" / "passages.json").read_text())]
