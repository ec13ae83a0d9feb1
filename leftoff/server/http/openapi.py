"""Describes the routes and their bodies as OpenAPI, from the types they are parsed with."""

import re
from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec

from leftoff import __version__
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import error_shape

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    types = [*bodies, *{_error_type(endpoint): None for endpoint in endpoints}]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "leftoff", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "done"},
            "4XX": {"description": "refused, and why", "content": _json(schemas[_error_type(endpoint)])},
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas[endpoint.body])}
    if names := _PARAMETER.findall(endpoint.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return operation


def _error_type(endpoint: Endpoint) -> type[msgspec.Struct]:
    kind: type[msgspec.Struct] = get_type_hints(error_shape(endpoint.path))["return"]
    return kind


def _json(schema: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"application/json": {"schema": schema}}
