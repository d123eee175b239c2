"""OpenAPI documents, made of the schemas when first asked for."""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256

from dray.apiserver.discovery import VERSION, Document
from dray.apiserver.registry import Registry
from dray.apiserver.schema import Schemas


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
        """Only clients of long ago need it; they get an empty document and go on without."""
        info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
        return Document({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
