"""OpenAPI documents, made of the schemas when first asked for, and again when a kind that is defined changes."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from dray.apiserver.discovery import VERSION, Document
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.schema import Schemas
from dray.apiserver.store import encode

_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # Go does not read a type with an @
_COMPONENTS: Final = "#/components/schemas/"


class OpenApi:
    def __init__(self, registry: Registry, schemas: Schemas) -> None:
        self._registry, self._schemas = registry, schemas
        self._documents: dict[str, Document] = {}
        self.refresh()

    def refresh(self) -> None:
        """What is served has changed. Documents of groups that have nothing but declared kinds stay as they are."""
        self._paths = {
            f"apis/{group}/{version}" if group else f"api/{version}": resources
            for group, versions in self._registry.group_versions().items()
            for version, resources in versions.items()
        }
        kept = [path for path in self._documents if path in self._paths and not _defined(self._paths[path])]
        self._documents = {path: self._documents[path] for path in kept}
        self._tags: dict[str, str] = {}
        self._index: Document | None = None
        self._v2: Document | None = None

    @property
    def index(self) -> Document:
        """Documents are tagged by the version that serves them, so that the index does not have to make them all; those with
        kinds that are defined by their schemas."""
        if self._index is None:
            served = {path: f"/openapi/v3/{path}?hash={_tag(resources)}" for path, resources in self._paths.items()}
            self._index = Document({"paths": {path: {"serverRelativeURL": url} for path, url in served.items()}})
        return self._index

    def v3(self, path: str) -> Document | None:
        if path not in self._paths:
            return None
        found = self._documents.get(path)
        if found is None:
            found = self._documents[path] = Document(self._made(path))
        return found

    def _made(self, path: str) -> dict[str, Any]:
        return self._schemas.openapi_v3(self._paths[path], version=VERSION["gitVersion"])

    @property
    def v2(self) -> Document:
        """kubectl asks for it, in protobuf, before it leaves a List to the server, and does not look into it."""
        info = _text(1, "Kubernetes") + _text(2, VERSION["gitVersion"])
        return Document(_text(1, "2.0") + _field(2, info) + _field(8, b""), _V2)

    @property
    def v2_json(self) -> Document:
        """All kinds in one document, as clients had it before version 3."""
        if self._v2 is None:
            definitions: dict[str, Any] = {}
            paths: dict[str, Any] = {}
            for path in self._paths:
                made = self._made(path)
                definitions |= made["components"]["schemas"]
                paths |= made["paths"]
            whole = {
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
                "paths": {path: _operations(each) for path, each in paths.items()},
                "definitions": definitions,
            }
            self._v2 = Document(_as_v2(whole))
        return self._v2


def _defined(resources: list[Resource]) -> bool:
    return any(resource.structure is not None for resource in resources)


def _tag(resources: list[Resource]) -> str:
    """Changes when the document does."""
    said: Any = VERSION["gitVersion"]
    if _defined(resources):
        said = [said, [[r.kind.plural, r.list_name, r.structure.published] for r in resources if r.structure is not None]]
    return sha256(encode(said)).hexdigest()[:32].upper()


def _operations(operations: dict[str, Any]) -> dict[str, Any]:
    """Bodies are parameters, and answers have no media types of their own."""
    made = {}
    for method, operation in operations.items():
        body = operation.get("requestBody")
        parameters = [
            {**{key: value for key, value in each.items() if key != "schema"}, **each["schema"]}
            for each in operation["parameters"]
        ]
        consumes = list(body["content"]) if body else ["*/*"]
        if body:
            schema = next(iter(body["content"].values()))["schema"]
            parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": schema})
        answers = {
            code: {"description": each["description"], "schema": next(iter(each["content"].values()))["schema"]}
            for code, each in operation["responses"].items()
        }
        rest = {key: value for key, value in operation.items() if key not in ("requestBody", "parameters", "responses")}
        made[method] = rest | {
            "consumes": consumes,
            "produces": ["application/json"],
            "parameters": parameters,
            "responses": answers,
        }
    return made


# What version 2 has no words for.
_ONLY_V3: Final = ("oneOf", "anyOf", "not", "nullable")


def _as_v2(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value.get("allOf") or ()) == 1 and "$ref" in value["allOf"][0]:
            value = {key: each for key, each in value.items() if key != "allOf"} | value["allOf"][0]
        return {
            key: each.replace(_COMPONENTS, "#/definitions/") if key == "$ref" and isinstance(each, str) else _as_v2(each)
            for key, each in value.items()
            if key not in _ONLY_V3 or not isinstance(each, list | bool)
        }
    return [_as_v2(each) for each in value] if isinstance(value, list) else value


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    """A short field of a protobuf message."""
    return bytes([number << 3 | 2, len(data)]) + data
