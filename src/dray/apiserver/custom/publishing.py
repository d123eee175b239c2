"""A schema as OpenAPI shows it: what kubectl explains, and what clients generate code from."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

# What is an extension of Kubernetes and no client reads.
_LEFT_OUT: Final = ("x-kubernetes-validations", "example", "$schema", "id", "definitions", "dependencies")
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_API_VERSION: Final = "APIVersion defines the version of the API that this object is written in."
_KIND: Final = "Kind says what this object is."


def published(schema: Schema) -> Schema:
    """The schema of a kind with what every kind has."""
    made = _schema(schema)
    own = {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
        "metadata": {
            "description": "Standard object's metadata: its name, labels and life.",
            "allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}],
        },
    }
    return made | {"properties": {**own, **{k: v for k, v in (made.get("properties") or {}).items() if k not in own}}}


def _schema(schema: Schema) -> Schema:
    made = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
    for name in ("properties", "patternProperties"):
        if name in made:
            made[name] = {each: _schema(below) for each, below in made[name].items()}
    for name in ("items", "additionalProperties", "not"):
        if isinstance(made.get(name), dict):
            made[name] = _schema(made[name])
    for name in ("allOf", "anyOf", "oneOf"):
        if name in made:
            made[name] = [_schema(each) for each in made[name]]
    if made.get("x-kubernetes-int-or-string"):
        made.setdefault("oneOf", [{"type": "integer"}, {"type": "string"}])
    return made
