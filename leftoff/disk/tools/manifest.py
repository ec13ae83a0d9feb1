"""What a bundle says of itself, read as a stranger's word: nothing is believed that no export would have written."""

import re
from dataclasses import dataclass
from typing import Any

from leftoff.disk.blob import Blob
from leftoff.disk.path_hash import TOKEN_BYTES
from leftoff.engine.seal import FINGERPRINT_BYTES, PAGE, SEAL_BYTES, SNAPSHOT

_PART_FIELDS = ("kind", "start", "end", "nbytes")
_FINGERPRINT = re.compile(rf"[0-9a-f]{{{2 * FINGERPRINT_BYTES}}}")
_MOST_TOKENS = 1 << 24
_LONGEST_NAME = 200  # bytes, of a model or a namespace


@dataclass(frozen=True)
class Part:
    """One blob of a bundle."""

    kind: int
    start: int
    end: int
    nbytes: int

    @classmethod
    def of(cls, blob: Blob) -> "Part":
        return cls(blob.kind, blob.start, blob.end, blob.nbytes)

    @property
    def file_bytes(self) -> int:
        return SEAL_BYTES + self.nbytes


@dataclass(frozen=True)
class Strand:
    """A path, and what there is on it."""

    num_tokens: int
    parts: list[Part]

    @property
    def file_bytes(self) -> int:
        return sum(part.file_bytes for part in self.parts)


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself, before anything was verified. The first strand is the one that was asked for."""

    fingerprint: str
    label: str
    namespace: str
    strands: list[Strand]

    @property
    def num_tokens(self) -> int:
        return self.strands[0].num_tokens

    @property
    def nbytes(self) -> int:
        return sum(strand.num_tokens * TOKEN_BYTES + strand.file_bytes for strand in self.strands)


def parse_manifest(content: dict[str, Any]) -> Manifest:
    """Raises `ValueError`, `TypeError` or `KeyError` if it says what no export would."""
    strands = [_strand(strand) for strand in content["strands"]]
    fingerprint, label, namespace = (content[name] for name in ("fingerprint", "label", "namespace"))
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError("no fingerprint")
    if not strands or not all(strand.parts for strand in strands):
        raise ValueError("nothing in it")
    return Manifest(fingerprint, _name(label), _name(namespace), strands)


def _name(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no name")
    if len(text.encode()) > _LONGEST_NAME or not (text == "" or text.isprintable()):
        raise ValueError(f"{text!r} is no name")
    return text


def _strand(content: dict[str, Any]) -> Strand:
    num_tokens = _count(content["num_tokens"])
    parts = [Part(*(_count(part[name]) for name in _PART_FIELDS)) for part in content["parts"]]
    if num_tokens > _MOST_TOKENS or not all(_is_sound(part, num_tokens) for part in parts):
        raise ValueError("a part outside of its tokens")
    if len({(part.kind, part.start, part.end) for part in parts}) < len(parts):
        raise ValueError("a part that is there twice")
    return Strand(num_tokens, parts)


def _is_sound(part: Part, num_tokens: int) -> bool:
    is_page = part.kind == PAGE and part.start < part.end
    is_snapshot = part.kind == SNAPSHOT and 0 < part.start == part.end
    return (is_page or is_snapshot) and part.end <= num_tokens


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
