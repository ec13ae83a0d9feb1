"""How people type: with and without greetings, capitals, punctuation and care."""

from training.draw import Draw, uncapitalised

_PADDED = 0.12


def asked(draw: Draw, question: str, noise: float = 0.2) -> str:
    """A question as somebody may put it."""
    question = _padded(draw, question) if draw.chance(_PADDED) else question
    before, after = draw.phrase("ask", "open"), draw.phrase("ask", "close")
    if before:
        question = before + (question if before.rstrip().endswith(("?", "!", ".")) else uncapitalised(question))
    return typed(draw, question + after, noise)


def typed(draw: Draw, text: str, noise: float = 0.2) -> str:
    """Sometimes in lower case, without punctuation, or with a slip in a common word, never in a value."""
    if not draw.chance(noise):
        return text
    style = draw.pick(("lower", "bare", "both", "slip"))
    if style == "slip":
        return _slip(draw, text)
    bare = text.rstrip("?.!") if style != "lower" else text
    return bare if style == "bare" or _has_code(text) else bare.lower()


def _padded(draw: Draw, question: str) -> str:
    """With a small word more, after the first one or at the end: questions are not of one mould."""
    first, _, rest = question.partition(" ")
    if first in ("What", "When", "Where", "Who") and draw.chance(0.4):
        return f"{first} {draw.word('pad_inside')} {rest}"
    return f"{question[:-1]} {draw.word('pad_end')}?" if question.endswith("?") else question


def _has_code(text: str) -> bool:
    """Upper case that means something."""
    return any(word.isupper() and len(word.strip("?.,!")) > 1 for word in text.split())


def _slip(draw: Draw, text: str) -> str:
    words = text.split(" ")
    known = [i for i, word in enumerate(words) if word.strip("?.,!").lower() in draw.content.words["mistyped"]]
    if not known:
        return text
    index = draw.pick(known)
    word = words[index]
    at = draw.number(1, max(1, len(word.rstrip("?.,!")) - 2))
    swapped, dropped = word[:at] + word[at + 1] + word[at] + word[at + 2 :], word[:at] + word[at + 1 :]
    words[index] = draw.pick((swapped, dropped, word[:at] + word[at] + word[at:]))
    return " ".join(words)
