"""What the generator draws from: words and phrasings, in TOML files beside the code.

`content/` is what the model is trained on. `heldout/` has files of the same shape with other words and other
phrasings, for the evaluation; what it does not replace is the same in both.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Table = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """All words and phrasings of one source. `novelty` is how often a value is a word that no list has."""

    words: dict[str, list[str]]
    phrases: dict[str, dict[str, list[str]]]
    personal: list[Table]
    sheet: list[Table]
    tools: list[Table]
    bookings: list[Table]
    smalltalk: list[Table]
    world: list[Table]
    novelty: float

    def texts(self) -> Iterator[str]:
        """Every phrasing: what must not stand in another source."""
        for group in self.phrases.values():
            for phrasings in group.values():
                yield from phrasings
        for fact in self.personal:
            yield from (*fact["says"], *fact["asks"])
        for fact in self.sheet:
            yield from fact["says"]
            for asks, _, _ in fact["questions"]:
                yield from asks
        for tool in self.tools:
            yield from (*tool["asks"], *tool["names"])


@cache
def training_content() -> Content:
    return _load(HERE / "content", novelty=0.4)


@cache
def heldout_content(*, rephrased: bool) -> Content:
    """New words in the phrasings of training, or in new ones. The words are new already, so none need be made up."""
    return _load(HERE / "heldout", novelty=0.0, names=None if rephrased else ("words",))


def _load(folder: Path, novelty: float, names: tuple[str, ...] | None = None) -> Content:
    """`names` are the files that count in this folder; None is all. The rest comes from `content/`."""
    common = {path.stem: tomllib.loads(path.read_text()) for path in (HERE / "content").glob("*.toml")}
    own = {
        path.stem: tomllib.loads(path.read_text())
        for path in folder.glob("*.toml")
        if names is None or path.stem in names
    }

    def rows(name: str, key: str) -> list[Table]:
        found: list[Table] = own.get(name, common[name])[key]
        return found

    phrases = common["phrases"]
    for group, phrasings in own.get("phrases", {}).items():
        phrases[group] = phrases[group] | phrasings
    return Content(
        words=common["words"] | own.get("words", {}),
        phrases=phrases,
        personal=rows("personal", "fact"),
        sheet=rows("sheet", "fact"),
        tools=rows("tools", "tool"),
        bookings=rows("booking", "booking"),
        smalltalk=rows("smalltalk", "row"),
        world=rows("world", "row"),
        novelty=novelty,
    )
