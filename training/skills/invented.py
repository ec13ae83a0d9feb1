"""Tools that do not exist: only the prompt says when to call them and how, so that is what the model must read."""

from training.coined import coined, rare_words
from training.content import Table as Row
from training.draw import Draw, capitalised
from training.skills.tool import Tool, make_tool

_TEXTS = (
    *("anything", "anything", "wording", "thing", "city", "first_name", "full_name", "song", "digits", "code"),
    *("day", "clock", "date", "street", "venue", "passcode", "food", "colour", "animal", "job", "hobby"),
)
_NUMBERS = ("minutes", "small_amount", "count", "amount", "age")
_NUMBER_SHARE = 0.2
_NUM_ASKS = 4  # phrasings of one tool in one conversation


def invent_tool(draw: Draw) -> Tool:
    verb, noun, slots = draw.word("tool_verb"), _noun(draw), _slots(draw)
    words = {"verb": verb, "noun": noun, "first": _said(slots["s0"])}
    for slot in slots.values():
        slot["description"] = draw.phrase("invented", "about", name=_said(slot), **words)
    row: Row = {
        "topic": f"the {noun}",
        "names": [_name(draw, verb.replace(" ", "_"), noun)],
        "description": draw.phrase("invented", "description", **words),
        "parameters": slots,
        "asks": [_ask(draw, words, slots) for _ in range(_NUM_ASKS)],
        "says": [f"I did {verb} the {noun}.", "Done.", "It is done.", f"The {noun} is ready."],
        "result": {"ok": "true"},
        "missing": [f"{capitalised(verb)} the {noun}.", f"Sure. Please tell me the {_all_names(slots)}."],
    }
    return make_tool(draw, row)


def _noun(draw: Draw) -> str:
    if draw.chance(0.7):
        return draw.pick(rare_words().common)
    return draw.pick((coined(draw), draw.word("object"), draw.word("grocery"), draw.word("kept_object")))


def _slots(draw: Draw) -> dict[str, Row]:
    """One to three parameters, with the kinds of value that they take."""
    count = draw.pick((1, 1, 1, 2, 2, 3))
    rare = draw.some(rare_words().common, count)
    known = draw.some(draw.content.words["tool_parameter"], count)
    names = [draw.pick((one, one, other, f"{one}_{other}")) for one, other in zip(rare, known, strict=True)]
    return {f"s{index}": {"names": [name]} | _kind(draw) for index, name in enumerate(dict.fromkeys(names))}


def _kind(draw: Draw) -> Row:
    if draw.chance(_NUMBER_SHARE):
        return {"type": "integer", "value": draw.pick(_NUMBERS)}
    return {"value": draw.pick(_TEXTS)}


def _name(draw: Draw, verb: str, noun: str) -> str:
    other = draw.pick(rare_words().common)
    noun = noun.replace(" ", "_")
    shapes = (f"{verb}_{noun}", f"{verb}_{noun}", noun, f"{noun}_{other}", f"{other}_{noun}", f"{noun}_{verb}", verb)
    return draw.pick((*shapes, f"{verb}_{other}", verb + capitalised(noun)))


def _ask(draw: Draw, words: dict[str, str], slots: dict[str, Row]) -> str:
    """A phrasing whose only open slots are the values. Where the parameters are named, they come in any order."""
    only = [f"{{{slot}}}" for slot in slots]
    given = [draw.phrase("invented", "given", name=_said(slots[slot]), slot=f"{{{slot}}}") for slot in slots]
    joint = draw.pick((" and ", ", "))
    return draw.phrase("invented", "ask", given=joint.join(draw.some(given, 3)), only=", ".join(only), **words)


def _said(row: Row) -> str:
    name: str = row["names"][0]
    return name.replace("_", " ")


def _all_names(slots: dict[str, Row]) -> str:
    return " and the ".join(_said(row) for row in slots.values())
