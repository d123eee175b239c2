"""The OpenAPI document of version 2: all kinds in one, as JSON, and in the protobuf that kubectl and other Go clients ask for.

Made of the documents of version 3. The protobuf has only the definitions: nobody reads paths from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dray.api.wire import BYTES, varint
from dray.apiserver.store import encode

Document = dict[str, Any]

PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # Go does not read a type with an @
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_COMPONENTS: Final = "#/components/schemas/"
# What version 2 has no words for.
_ONLY_V3: Final = ("oneOf", "anyOf", "not", "nullable")


def document(parts: Iterable[Document], version: str) -> Document:
    definitions: Document = {}
    paths: Document = {}
    for part in parts:
        definitions |= part["components"]["schemas"]
        paths |= part["paths"]
    whole = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": {path: _operations(each) for path, each in paths.items()},
        "definitions": definitions,
    }
    made: Document = _converted(whole)
    return made


def _operations(operations: Document) -> Document:
    """Bodies are parameters, and answers have no media types of their own."""
    made = {}
    for method, operation in operations.items():
        body = operation.get("requestBody")
        parameters = [
            {**{key: value for key, value in each.items() if key != "schema"}, **each["schema"]}
            for each in operation.get("parameters", ())
        ]
        if body:
            schema = next(iter(body["content"].values()))["schema"]
            parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": schema})
        answers = {
            code: {"description": each["description"], "schema": next(iter(each["content"].values()))["schema"]}
            for code, each in operation["responses"].items()
        }
        rest = {key: value for key, value in operation.items() if key not in ("requestBody", "parameters", "responses")}
        made[method] = rest | {
            "consumes": list(body["content"]) if body else ["*/*"],
            "produces": ["application/json"],
            "parameters": parameters,
            "responses": answers,
        }
    return made


def _converted(value: Any) -> Any:
    if isinstance(value, list):
        return [_converted(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value.get("allOf") or ()) == 1 and "$ref" in value["allOf"][0]:
        value = {key: each for key, each in value.items() if key != "allOf"} | value["allOf"][0]
    if value.get(_PRESERVE) and value.get("type") == "object" and "$ref" not in value:
        # In version 2 a type forbids what is not specified.
        value = {key: each for key, each in value.items() if key not in ("type", "properties", "items")} | _own(value)
    return {
        key: each.replace(_COMPONENTS, "#/definitions/") if key == "$ref" and isinstance(each, str) else _converted(each)
        for key, each in value.items()
        if (key not in _ONLY_V3 or not isinstance(each, list | bool)) and (key != _PRESERVE or each is not False)
    }


def _own(schema: Document) -> Document:
    """Of an object that may have anything, only a kind keeps what every kind has."""
    if "x-kubernetes-group-version-kind" not in schema:
        return {}
    properties = schema.get("properties") or {}
    made: Document = {"type": "object", "properties": properties}
    # A kind of which nothing is said is just an object.
    return made | {_PRESERVE: False} if set(properties) <= {"apiVersion", "kind", "metadata"} else made


# --------------------------------------------------------------------------------------------------------------- protobuf

_TEXTS: Final = (("$ref", 1), ("format", 2), ("title", 3), ("description", 4), ("pattern", 13))
_DOUBLES: Final = (("multipleOf", 6), ("maximum", 7), ("minimum", 9))
_NUMBERS: Final = (
    ("exclusiveMaximum", 8), ("exclusiveMinimum", 10), ("maxLength", 11), ("minLength", 12), ("maxItems", 14), ("minItems", 15),
    ("uniqueItems", 16), ("maxProperties", 17), ("minProperties", 18),
)  # fmt: skip


def protobuf(whole: Document) -> bytes:
    info = _text(1, whole["info"]["title"]) + _text(2, whole["info"]["version"])
    definitions = b"".join(_field(1, _named(name, schema)) for name, schema in whole["definitions"].items())
    return _text(1, "2.0") + _field(2, info) + _field(8, b"") + _field(9, definitions)


def _named(name: str, schema: Document) -> bytes:
    return _text(1, name) + _field(2, _schema(schema))


def _schema(schema: Document) -> bytes:
    return b"".join(_parts(schema))


def _parts(schema: Document) -> Iterator[bytes]:
    for name, number in _TEXTS:
        if schema.get(name):
            yield _text(number, schema[name])
    for name, number in _DOUBLES:
        if name in schema:
            yield varint(number << 3 | 1) + struct.pack("<d", schema[name])
    for name, number in _NUMBERS:
        if schema.get(name):
            yield varint(number << 3) + varint(int(schema[name]))
    if "default" in schema:
        yield _field(5, _any(schema["default"]))
    for name in schema.get("required") or ():
        yield _text(19, name)
    for value in schema.get("enum") or ():
        yield _field(20, _any(value))
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        yield _field(21, _field(1, _schema(additional)))
    elif additional:
        yield _field(21, varint(2 << 3) + varint(1))
    if schema.get("type"):
        yield _field(22, _text(1, schema["type"]))
    if isinstance(schema.get("items"), dict):
        yield _field(23, _field(1, _schema(schema["items"])))
    for each in schema.get("allOf") or ():
        yield _field(24, _schema(each))
    if schema.get("properties"):
        yield _field(25, b"".join(_field(1, _named(name, each)) for name, each in schema["properties"].items()))
    for name, value in schema.items():
        if name.startswith("x-"):
            yield _field(31, _text(1, name) + _field(2, _any(value)))


def _any(value: Any) -> bytes:
    """YAML, of which JSON is a part."""
    return _field(2, encode(value) + b"\n")


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(data)) + data
