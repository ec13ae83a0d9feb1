"""A text as a grammar must say it: control tokens by their ids, all else letter by letter."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from blake3 import blake3

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.grammar import Grammar

_ANY_TEXT = r"/(.|\n)*/"


def literal(text: str, vocabulary: Vocabulary) -> Grammar:
    """Exactly this text, as the template writes it and the model was trained on it."""
    return Grammar(" ".join(_parts(text, vocabulary)) or '""', (), len(text), is_row=True)


def text_until(end: str, vocabulary: Vocabulary) -> Grammar:
    """Any text up to the first `end`, and that."""
    first, *rest = _parts(end, vocabulary)
    if first.startswith("<["):  # no part of any text: nothing to look out for
        return Grammar(" ".join([_ANY_TEXT, first, *rest]))
    name = f"until_{blake3(first.encode()).hexdigest()[:12]}"
    return Grammar(" ".join([name, *rest]), (f"{name}[lazy]: {_ANY_TEXT} {first}",))


@lru_cache(4)
def _control_names(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.piece(token).decode("utf-8", "replace"): token for token in vocabulary.control_tokens}


def _parts(text: str, vocabulary: Vocabulary) -> Iterator[str]:
    ids = _control_names(vocabulary)
    names = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True) if name and name in text)
    for part in re.split(f"({names})", text) if names else [text]:
        if part in ids:
            yield f"<[{ids[part]}]>"
        elif part:
            yield json.dumps(part, ensure_ascii=False)
