"""OpenAPI documents, made of the schemas when first asked for."""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import Final

from dray.apiserver.discovery import VERSION, Document
from dray.apiserver.registry import Registry
from dray.apiserver.schema import Schemas

_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # Go does not read a type with an @


class OpenApi:
    def __init__(self, registry: Registry, schemas: Schemas) -> None:
        self._schemas = schemas
        self._documents: dict[str, Document] = {}
        self._paths = {
            f"apis/{group}/{version}" if group else f"api/{version}": resources
            for group, versions in registry.group_versions().items()
            for version, resources in versions.items()
        }

    @cached_property
    def index(self) -> Document:
        """Documents are tagged by the version that serves them, so that the index does not have to make them all."""
        tag = sha256(VERSION["gitVersion"].encode()).hexdigest()[:32].upper()
        return Document({"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={tag}"} for path in self._paths}})

    def v3(self, path: str) -> Document | None:
        if path not in self._paths:
            return None
        found = self._documents.get(path)
        if found is None:
            made = self._schemas.openapi_v3(self._paths[path], version=VERSION["gitVersion"])
            found = self._documents[path] = Document(made)
        return found

    @cached_property
    def v2(self) -> Document:
        """Nobody needs its content any more: kubectl asks for it, in protobuf, before it leaves a List to the server."""
        info = _text(1, "Kubernetes") + _text(2, VERSION["gitVersion"])
        return Document(_text(1, "2.0") + _field(2, info) + _field(8, b""), _V2)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    """A short field of a protobuf message."""
    return bytes([number << 3 | 2, len(data)]) + data
