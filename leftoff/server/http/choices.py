"""What a field of a wire type may say, where it has only a few words to choose from: msgspec's errors do not tell."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.inspect import ListType, LiteralType, Metadata, StructType, Type, UnionType, type_info

_STEP = re.compile(r"\w+|\[")


def choices_at(kind: type[Any], path: str) -> tuple[str, ...]:
    """The words that may stand at a path such as `messages[0].role`; nothing where any may."""
    found = [*_plain(type_info(kind))]
    for step in _STEP.findall(re.sub(r"\[\w+", "[", path)):
        found = [plain for one in found for inner in _inner(one, step) for plain in _plain(inner)]
    return tuple(str(value) for one in found if isinstance(one, LiteralType) for value in one.values)


def _plain(kind: Type) -> Iterator[Type]:
    """What a union may be, one after the other."""
    match kind:
        case UnionType(types=types):
            for one in types:
                yield from _plain(one)
        case Metadata(type=inner):
            yield from _plain(inner)
        case _:
            yield kind


def _inner(kind: Type, step: str) -> Iterator[Type]:
    match kind:
        case StructType(fields=fields):
            yield from (field.type for field in fields if field.encode_name == step)
        case ListType(item_type=item) if step == "[":
            yield item
