"""Arguments that a model writes one by one, turned into one JSON object as they arrive."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType

from leftoff.chat.formats.json_calls import escaped, from_json, to_json
from leftoff.chat.formats.scanner import Emit, Markers, MismatchError, Scanner, Waiting

STRING = frozenset({"string"})
_MAX_HELD = 1 << 16  # characters of a value whose type is not known before its end
_TYPES: Mapping[type, frozenset[str]] = {
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    str: STRING,
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    NoneType: frozenset({"null"}),
}
_PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True)
class Parameter:
    """A parameter whose value comes next; `types` are the JSON types that it may have."""

    key: str
    types: frozenset[str]


@dataclass(frozen=True)
class ParameterTags:
    """The texts that begin a parameter, end its value, and end the call."""

    begin: str
    value_ends: Markers
    call_end: str


class ObjectWriter:
    """Emits the JSON around the values of an object."""

    def __init__(self, scanner: Scanner) -> None:
        self._emit = scanner.emit_arguments
        self._is_empty = True

    def key(self, name: str) -> None:
        self._emit(("{" if self._is_empty else ", ") + to_json(name) + ": ")
        self._is_empty = False

    def end(self) -> None:
        self._emit("{}" if self._is_empty else "}")


class _ValueWriter:
    """Emits a value that is written without quotes as JSON: strings piece by piece, others when they are complete."""

    def __init__(self, emit: Emit, types: frozenset[str]) -> None:
        self._emit = emit
        self._types = types
        self._held = ""
        self._is_string = False

    def write(self, text: str) -> None:
        if self._is_string:
            self._emit(escaped(text))
            return
        self._held += text
        if self._held and self._must_be_string():
            self._is_string = True
            self._emit('"' + escaped(self._held))

    def end(self) -> None:
        self._emit('"' if self._is_string else as_json(self._held, self._types))

    def break_off(self) -> None:
        """The reply ended inside the value: emits what there is of it."""
        if not self._is_string and self._held:
            self._emit('"' + escaped(self._held) if "string" in self._types else self._held)

    def _must_be_string(self) -> bool:
        if self._types <= STRING or len(self._held) > _MAX_HELD:
            return True
        return self._types == {"string", "null"} and not "null".startswith(self._held.strip())


def parse_parameters(
    scanner: Scanner,
    name: str,
    tags: ParameterTags,
    parse_key: Callable[[], Waiting[Parameter]],
    is_complete: Callable[[], Waiting[bool]] | None = None,
) -> Waiting[None]:
    """Parses the parameters of a call, up to and including its end. `parse_key` goes on behind a tag that begins one.

    Where the text of a value's end may be part of the value, `is_complete` tells whether it is over.
    """

    def next_parameter() -> Waiting[Parameter | None]:
        yield from scanner.spaces()
        if (yield from scanner.accept(tags.begin)):
            return (yield from parse_key())
        yield from scanner.expect(tags.call_end)
        return None

    parameter = yield from next_parameter()
    scanner.start_call(name)
    arguments = ObjectWriter(scanner)
    while parameter is not None:
        arguments.key(parameter.key)
        value = _ValueWriter(scanner.emit_arguments, parameter.types)
        while True:
            end = yield from scanner.until(tags.value_ends, value.write)
            if end is None:
                value.break_off()
                raise MismatchError
            if is_complete is None or (yield from is_complete()):
                break
            value.write(end)
        value.end()
        scanner.mark()
        parameter = yield from next_parameter()
        scanner.unmark()
    arguments.end()
    scanner.mark()


def as_json(text: str, types: frozenset[str]) -> str:
    """A value that is written without quotes, as JSON. What looks like another type is a string only if it must be."""
    literal = _PYTHON_NAMES.get(text.strip(), text.strip())
    try:
        value = from_json(literal)
    except ValueError:
        return to_json(text)
    is_string = "string" in types and not _TYPES[type(value)] & (types - STRING)
    return to_json(text) if is_string else literal
