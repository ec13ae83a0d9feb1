"""Words that no list has: made up, or rare ones of the real text.

A model that has only seen short lists answers with a word of its list in place of one it never met. Values that are
new at every turn leave it no way but to copy.
"""

import codecs
from dataclasses import dataclass
from functools import cache

from training.content import HERE
from training.draw import Draw, capitalised
from training.tokens import beginnings

RARE_WORDS = HERE / "data" / "rare_words.txt"

# Parts of words that nobody wants to read in a reply, in rot13 so that nobody has to read them here either.
_UNWANTED = codecs.decode(
    "nahf nany shpx fuvg phag qvpx pbpx avt encr frk cbea gvg fyhg uber anmv snt xvxr cvff cbb phz ovgpu pbba zreq xvyy"
    " uvgy chgn pnpn ahq nff ohz uryy qnza penc nefr fcvp tbbx wnc ubzb cuvav crqb jnax gheq fhvpv ynqob qehtf tha",
    "rot13",
).split()


@dataclass(frozen=True)
class RareWords:
    """From the real text: `common` are lower-case words, `proper` are names."""

    common: tuple[str, ...]
    proper: tuple[str, ...]


@cache
def rare_words() -> RareWords:
    words = RARE_WORDS.read_text().split()
    return RareWords(tuple(w for w in words if w.islower()), tuple(w for w in words if not w.islower()))


def is_wanted(word: str) -> bool:
    return not any(part in word.lower() for part in _UNWANTED)


def coined(draw: Draw) -> str:
    """A lower-case word that does not exist."""
    while True:
        word = draw.pick((_syllables, _blend, _pieced))(draw)
        if is_wanted(word):
            return word


def coined_name(draw: Draw) -> str:
    return capitalised(coined(draw)) if draw.chance(0.6) else draw.pick(rare_words().proper)


def coined_phrase(draw: Draw) -> str:
    """A few words in a row, of little sense: nothing but the text itself says that it is "our" and not "the"."""
    parts = [f"{draw.word('owner')} {_any_word(draw)}" for _ in range(draw.pick((1, 1, 2, 2, 3)))]
    phrase = parts[0]
    for part in parts[1:]:
        phrase += f" {draw.word('link')} {part if draw.chance(0.5) else _any_word(draw)}"
    if draw.chance(0.3):
        phrase += f" {draw.word('link')} {_any_word(draw)}"
    return phrase.partition(" ")[2] if draw.chance(0.3) else phrase


def coined_title(draw: Draw) -> str:
    """As of a song or a book."""
    words = [_any_word(draw) for _ in range(draw.pick((1, 2, 2, 2, 3)))]
    joint = draw.pick((" ", " ", " ", f" {draw.word('title_link')} "))
    return draw.pick(("", "", "The ", "A ", "My ")) + joint.join(map(capitalised, words))


def _any_word(draw: Draw) -> str:
    if draw.chance(0.4):
        return coined(draw)
    return draw.pick(rare_words().common if draw.chance(0.8) else rare_words().proper)


def _syllables(draw: Draw) -> str:
    parts = [draw.word("onset") + draw.word("vowel") for _ in range(draw.pick((1, 2, 2, 2, 3)))]
    return "".join(parts) + draw.word("coda") + draw.word("word_ending")


def _pieced(draw: Draw) -> str:
    """A piece of the tokenizer and the tail of a word. Copying is learned piece by piece, so each has to come up."""
    return draw.pick(beginnings()) + draw.pick(rare_words().common)[-draw.number(2, 5) :]


def _blend(draw: Draw) -> str:
    """The head of one word and the tail of another."""
    head, tail = draw.some(rare_words().common, 2)
    return head[: draw.number(2, 5)] + tail[-draw.number(2, 5) :]
