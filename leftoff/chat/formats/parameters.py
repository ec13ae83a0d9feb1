"""Arguments that a model writes one by one, made into one JSON object as they come."""

from collections.abc import Mapping
from types import NoneType

from leftoff.chat.formats.json_text import escaped, from_json, to_json
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Say, Waiting

TEXT = frozenset({"string"})
_MOST_HELD = 1 << 16  # characters of a value whose type is not known before its end
_KINDS: Mapping[type, frozenset[str]] = {
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    str: TEXT,
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    NoneType: frozenset({"null"}),
}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class ArgumentsWriter:
    """The object around the values."""

    def __init__(self, reading: Reading) -> None:
        self._say = reading.say_arguments
        self._is_empty = True

    def key(self, name: str) -> None:
        self._say(("{" if self._is_empty else ", ") + to_json(name) + ": ")
        self._is_empty = False

    def end(self) -> None:
        self._say("{}" if self._is_empty else "}")


class ValueWriter:
    """A value that stands there without quotes, piece by piece. Text goes out at once, all else at its end."""

    def __init__(self, say: Say, kinds: frozenset[str]) -> None:
        """`kinds` are the JSON types that it may have."""
        self._say = say
        self._kinds = kinds
        self._held = ""
        self._is_text = False

    def write(self, text: str) -> None:
        if self._is_text:
            self._say(escaped(text))
            return
        self._held += text
        if self._held and self._must_be_text():
            self._is_text = True
            self._say('"' + escaped(self._held))

    def end(self) -> None:
        self._say('"' if self._is_text else as_json(self._held, self._kinds))

    def break_off(self) -> None:
        """The reply ended within the value."""
        if not self._is_text and self._held:
            self._say('"' + escaped(self._held) if "string" in self._kinds else self._held)

    def _must_be_text(self) -> bool:
        if self._kinds <= TEXT or len(self._held) > _MOST_HELD:
            return True
        return self._kinds == {"string", "null"} and not "null".startswith(self._held.strip())


def read_value(reading: Reading, ends: Markers, value: ValueWriter) -> Waiting[str]:
    """Up to one of `ends`, and which it is."""
    end = yield from reading.until(ends, value.write)
    if end is None:
        value.break_off()
        raise NotSoError
    return end


def as_json(text: str, kinds: frozenset[str]) -> str:
    """A value that was written without quotes. What can be read as text and as something else is what it looks like."""
    literal = _PYTHON.get(text.strip(), text.strip())
    try:
        value = from_json(literal)
    except ValueError:
        return to_json(text)
    may_be_text = "string" in kinds and not _KINDS[type(value)] & (kinds - TEXT)
    return to_json(text) if may_be_text else literal
