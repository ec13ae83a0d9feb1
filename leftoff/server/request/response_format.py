"""The form a client wants its reply to have, by whatever field it says so."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.gbnf import from_gbnf
from leftoff.grammar.grammar import ANY_OBJECT, Grammar, check_characters, from_choices, from_regex, from_schema
from leftoff.server.http.errors import bad_field
from leftoff.server.request.fields import GenerationFields, ResponseFormat, Schema

_FORMATS = ("text", "json_object", "json_schema", "regex")


@dataclass(frozen=True)
class Form:
    """A grammar, and the field it comes from."""

    field: str
    grammar: Grammar


def form_field(body: GenerationFields) -> str | None:
    """The field that asks for a form, if any does."""
    return next((field for field, _, _ in _wanted(body)), None)


def form_of(body: GenerationFields) -> Form | None:
    """Raises what names the field if it cannot be read, or if there are two."""
    wanted = [*_wanted(body)]
    if len(wanted) > 1:
        raise bad_field(wanted[1][0], f"{wanted[0][0]} says already what the reply must look like: give one of them")
    return _read(*wanted[0]) if wanted else None


def _wanted(body: GenerationFields) -> Iterator[tuple[str, str, Any]]:
    """Each field that asks for a form, the kind of it, and its value."""
    if body.response_format is not None:
        yield from _response_format(body.response_format)
    vllm = body.structured_outputs
    fields = (
        ("grammar", "grammar", body.grammar or None),
        ("json_schema", "json", body.json_schema),
        ("guided_json", "json", body.guided_json),
        ("guided_regex", "regex", body.guided_regex),
        ("guided_choice", "choice", body.guided_choice),
        ("guided_grammar", "grammar", body.guided_grammar),
        ("structured_outputs.json", "json", vllm and vllm.json),
        ("structured_outputs.regex", "regex", vllm and vllm.regex),
        ("structured_outputs.choice", "choice", vllm and vllm.choice),
        ("structured_outputs.grammar", "grammar", vllm and vllm.grammar),
        ("structured_outputs.json_object", "json", {**ANY_OBJECT} if vllm and vllm.json_object else None),
    )
    yield from (field for field in fields if field[2] is not None)


def _response_format(wanted: ResponseFormat) -> Iterator[tuple[str, str, Any]]:
    match wanted.type:
        case "text":
            return
        case "json_object":  # llama-server takes a schema here too
            yield wanted.field("schema"), "json", {**ANY_OBJECT} if wanted.schema is None else wanted.schema
        case "json_schema" if wanted.json_schema is not None and wanted.json_schema.schema is not None:
            yield wanted.field("json_schema.schema"), "json", wanted.json_schema.schema
        case "json_schema" if wanted.schema is not None:
            yield wanted.field("schema"), "json", wanted.schema
        case "json_schema":
            raise bad_field(wanted.field("json_schema.schema"), "this field is required with type 'json_schema'")
        case "regex":
            if wanted.pattern is None:
                raise bad_field(wanted.field("pattern"), "this field is required with type 'regex'")
            yield wanted.field("pattern"), "regex", wanted.pattern
        case other:
            raise bad_field(wanted.field("type"), f"is {other!r}: must be one of {', '.join(_FORMATS)}")


def _read(field: str, kind: str, value: Any) -> Form:  # noqa: ANN401
    try:
        match kind:
            case "json":
                return Form(field, from_schema(_schema(value)))
            case "regex":
                return Form(field, from_regex(value))
            case "choice":
                return Form(field, from_choices(value))
            case _:
                return Form(field, from_gbnf(value))
    except GrammarError as error:
        raise bad_field(field, str(error)) from error


def _schema(value: Schema | str) -> Schema:
    """vLLM's clients may send it as a text."""
    if isinstance(value, str):
        check_characters(len(value))
    try:
        schema = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise GrammarError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarError("a schema must be an object")
    return schema
