"""Decodes a request's JSON body into a wire type; errors name the field at fault."""

import asyncio
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import ListType, LiteralType, Metadata, StructType, Type, UnionType, type_info
from starlette.requests import ClientDisconnect, Request

from leftoff.chat.meter import has_more_values
from leftoff.picture import KnownFile
from leftoff.server.http.errors import ApiError, ClientGoneError, missing_field
from leftoff.server.http.known_files import KnownFiles
from leftoff.server.tenant import tenant_of

Body = TypeVar("Body")

# Decoding blocks the event loop: 100 ms for a million numbers, twice that for a million lists. Text costs nothing.
MAX_VALUES = 1 << 20
_MUCH_BYTES = 1 << 20

_PATH = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_FRACTION = re.compile(r"Expected `int\b.*got `float`")
_PATH_STEP = re.compile(r"(\w+)|\[(\d*)")
_LIMIT = re.compile(r"Expected `(?:int|float)` (?P<sign>[<>]=) (?P<number>\S+)")
_EXPECTED = re.compile(
    r"Expected `(?P<kinds>[^`]+)`(?:(?: of length)? (?P<sign>[<>]=) (?P<number>\S+))?(?:, got `(?P<got>\w+)`)?"
)
_KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_SIGNS = {">=": "at least", "<=": "at most"}
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")


def known_files_of(request: Request) -> dict[str, KnownFile]:
    """The pictures of a request that were sent before, by the names that its decoded body has for them."""
    files: dict[str, KnownFile] = getattr(request.state, "known_files", {})
    return files


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The body of a request, decoded; its size is in the request's state. Large ones are checked on another thread."""
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise ApiError(415, f"the body is encoded as {encoding!r}: send it as it is", code="unsupported_encoding")
    try:
        data = await request.body()
    except ClientDisconnect as error:
        raise ClientGoneError from error
    return await decoded(request, data, kind)


async def decoded(request: Request, data: bytes, kind: type[Body]) -> Body:
    """Decodes a body of which all bytes have come.

    If its type has `picture_texts`, which yields the texts that are read as pictures and as nothing else, a picture
    that this client has sent before is not decoded again: in its place stands one of the names of `known_files_of`.
    """
    request.state.num_bytes = len(data)
    body = await _with_names(request, data, kind) if hasattr(kind, "picture_texts") else None
    return body if body is not None else await _read(data, kind)


async def _with_names(request: Request, data: bytes, kind: type[Body]) -> Body | None:
    """The body with names for the pictures that are known; None if there are none, or a text elsewhere equals one."""
    known: KnownFiles | None = getattr(request.app.state, "known_files", None)
    if known is None:
        return None
    owner = tenant_of(request).name
    is_large = len(data) > _MUCH_BYTES
    named = await asyncio.to_thread(known.named, owner, data) if is_large else known.named(owner, data)
    if not named.files:
        return None
    try:
        body: Any = await _read(named.data, kind)
    except ApiError:  # told again of the body as it came
        return None
    if not named.files.keys() <= set(body.picture_texts()):
        return None
    request.state.known_files = named.files
    return cast(Body, body)


async def _read(data: bytes, kind: type[Body]) -> Body:
    if len(data) <= _MUCH_BYTES:
        return decode(data, kind)
    if await asyncio.to_thread(has_more_values, data, MAX_VALUES):
        problem = f"the body has more than {MAX_VALUES} values: send less, and a long prompt as text"
        raise ApiError(400, problem, code="too_many_values")
    with _no_collection():
        return decode(data, kind)


def decode(data: bytes, kind: type[Body]) -> Body:
    """Decodes a body. Raises an `ApiError` that names the wrong field, or the first bad byte."""
    try:
        return _decoded(data, kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(error, kind, lambda: msgspec.json.decode(data)) from error
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: {_first_bad_byte(data, error)}", code="invalid_utf8") from error
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from error


def convert(value: Any, kind: Any, place: str, *, strict: bool = True) -> Any:  # noqa: ANN401
    """Convert a part of a body that was decoded without a type; errors name its place in the body."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _wrong_field(error, kind, lambda: value, place) from error


def _decoded(data: bytes, kind: type[Body]) -> Body:
    """Some clients write whole numbers as 20.0, which only msgspec's lax mode accepts; it still refuses fractions."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        if not _FRACTION.match(str(error)):
            raise
        return msgspec.json.decode(data, type=kind, strict=False)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turns garbage collection off, which would scan the many new objects again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _wrong_field(error: msgspec.ValidationError, kind: Any, sent: Callable[[], Any], place: str = "") -> ApiError:  # noqa: ANN401
    """The error for a value of the wrong type or size. `sent` gives all that was checked, which lies at `place`."""
    found = _PATH.match(str(error))
    assert found
    problem, inner = found["problem"], found["path"] or ""
    path = _joined(place, inner)
    if missing := _MISSING.search(problem):
        return missing_field(_joined(path, missing["field"]))
    if choices := _choices_at(kind, inner):
        problem = f"{_in_words(problem)}: must be one of {', '.join(choices)}"
    elif (limit := _LIMIT.fullmatch(problem)) and (number := _number_at(sent, inner)) is not None:
        problem = f"is {number}: must be {_SIGNS[limit['sign']]} {limit['number']}"
    else:
        problem = _in_words(problem)
    return ApiError(400, f"{path or 'the body'}: {problem}", param=path or None, code="invalid_value")


def _in_words(problem: str) -> str:
    """A message of msgspec with the types of JSON in place of those of Python."""
    found = _EXPECTED.fullmatch(problem)
    if found is None:
        return problem.replace("Invalid enum value", "is")
    kinds = [kind for kind in found["kinds"].split(" | ") if kind != "null"]
    words = " or ".join(_KINDS.get(kind, kind) for kind in kinds if kind != "int" or "float" not in kinds)
    limit = f" of {_SIGNS[found['sign']]} {found['number']}" if found["sign"] else ""
    unit = " characters" if limit and kinds == ["str"] else ""
    got = f", not {_KINDS.get(found['got'], found['got'])}" if found["got"] else ""
    return f"must be {words}{limit}{unit}{got}"


def _joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path and step and not step.startswith("[") else path + step


def _number_at(sent: Callable[[], Any], path: str) -> float | None:
    """The number at a path. None if that is not told: a path names no key of an object, and a body may break off."""
    with suppress(msgspec.MsgspecError, RecursionError, LookupError, TypeError, ValueError):
        value = sent()
        for name, index in _PATH_STEP.findall(path):
            value = value[name or int(index)]
        return value if isinstance(value, int | float) else None
    return None


def _first_bad_byte(data: bytes, error: UnicodeDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as whole:
        return f"byte {whole.start} is {data[whole.start]:#04x}"
    return error.reason


def _choices_at(kind: type[Any], path: str) -> tuple[str, ...]:
    """The values of a `Literal` at a path such as `messages[0].role`: msgspec's errors do not name them."""
    found = [*_plain(type_info(kind))]
    for name, _ in _PATH_STEP.findall(path):
        found = [plain for one in found for inner in _inner(one, name) for plain in _plain(inner)]
    return tuple(str(value) for one in found if isinstance(one, LiteralType) for value in one.values)


def _plain(kind: Type) -> Iterator[Type]:
    """The members of a union, without annotations."""
    match kind:
        case UnionType(types=types):
            for one in types:
                yield from _plain(one)
        case Metadata(type=inner):
            yield from _plain(inner)
        case _:
            yield kind


def _inner(kind: Type, name: str) -> Iterator[Type]:
    """The type of a field; without a name, that of the items of a list."""
    match kind:
        case StructType(fields=fields):
            yield from (field.type for field in fields if field.encode_name == name)
        case ListType(item_type=item) if not name:
            yield item
