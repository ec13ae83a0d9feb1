"""Models that people run, by short names: `qwen3.5-9b` is a file of a repository on the hub.

The facts are in `catalogue.toml`. Whether one fits a machine is for `engine/reckon.py` to say.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

_FILE = Path(__file__).with_suffix(".toml")


class CatalogueModel(Struct, frozen=True, forbid_unknown_fields=True):
    """A model of the catalogue, in the numbers that its memory is reckoned from. Its fields are told in the file."""

    repo: str
    kind: str
    quants: Mapping[str, int]
    context: int
    parameters: float
    layers: int
    attention: tuple[int, int]
    embedding: int
    vocabulary: int
    tools: str
    experts: float = 0.0
    window: tuple[int, int, int] = (0, 0, 0)
    state: int = 0
    tied: bool = False
    projector: bool = False


class Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """All models by their names, and the day on which the facts were so."""

    as_of: str
    models: Mapping[str, CatalogueModel]


@cache
def catalogue() -> Catalogue:
    """The catalogue that ships with this version, read once; no network is asked."""
    return msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), Catalogue)


def reference_of(text: str) -> str | None:
    """`org/repo:quant` for a name of the catalogue, with or without a quantisation; None for any other text."""
    name, _, quant = text.partition(":")
    model = catalogue().models.get(name.lower())
    return None if model is None else f"{model.repo}:{quant or next(iter(model.quants))}"
