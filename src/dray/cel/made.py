"""What expressions of policies make, as JSON: objects whose types are named after the places of their fields, and patches.

``Object.spec{replicas: 1}`` names its place. Nobody checks that it stands there before it is made.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.conversions import duration_text
from dray.cel.library.times import timestamp_text
from dray.cel.types import Type, list_of
from dray.cel.values import Duration, Made, Optional, Timestamp, Uint, from_key, type_name

OBJECT: Final = Type("struct", "Object")
PATCH: Final = list_of(Type("struct", "JSONPatch"))


def misplaced(value: Any, place: str = "") -> Iterator[str]:
    """What is wrong with the names of the objects in a value. Lists and maps between them have no names."""
    if isinstance(value, Made):
        place = place or value.name
        if value.name != place:
            yield (
                f'unexpected type name "{value.name}", expected "{place}", which matches field name path from root Object type'
            )
        for field, inner in value.fields.items():
            yield from misplaced(inner, f"{place}.{field}")
    elif isinstance(value, dict | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from misplaced(inner, place)


def configuration(made: Made) -> dict[str, Any]:
    """The object that an expression gives. What JSON does not have stays what it is: no field takes it."""
    return {field: _plain(value) for field, value in made.fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Made):
        return configuration(value)
    if isinstance(value, dict):
        return {_key(key, "invalid return type: *dynamic.ObjectVal"): _plain(inner) for key, inner in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def json_value(value: Any) -> Any:
    """The value of an operation of a JSON patch."""
    if isinstance(value, Made):
        return {field: json_value(inner) for field, inner in value.fields.items()}
    if isinstance(value, dict):
        why = f"{_NO_JSON}: unsupported type conversion from 'int' to string"
        return {_key(key, why): json_value(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [json_value(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp | Duration):
        return timestamp_text(value) if isinstance(value, Timestamp) else duration_text(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return int(value) if type(value) is Uint else value
    if isinstance(value, Optional) and value.present:
        return json_value(value.value)
    raise Failure(f"{_NO_JSON}: {type_name(value)}")


_NO_JSON: Final = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"


def _key(key: Any, why: str) -> str:
    name = from_key(key)
    if not isinstance(name, str):
        raise Failure(why)
    return name


def operation(made: Made) -> dict[str, Any]:
    """Of a JSON patch."""
    fields = made.fields
    found: dict[str, Any] = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if fields.get("from"):
        found["from"] = fields["from"]
    if "value" in fields:
        found["value"] = json_value(fields["value"])
    return found
