"""OpenAPI documents, made of the schemas when first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dray.apiserver.discovery import VERSION, Document
from dray.apiserver.registry import Registry
from dray.apiserver.schema import Schemas


class OpenApi:
    def __init__(self, registry: Registry, schemas: Schemas) -> None:
        self._registry, self._schemas = registry, schemas
        self._documents: dict[str, Document] = {}
        self._paths = {
            f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
            for group, versions in registry.group_versions().items()
            for version in versions
        }

    @cached_property
    def index(self) -> Document:
        paths: dict[str, Any] = {}
        for path in self._paths:
            document = self.v3(path)
            if document is not None:
                tag = document.etag.strip('"')
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={tag}"}
        return Document({"paths": paths})

    def v3(self, path: str) -> Document | None:
        if path not in self._paths:
            return None
        found = self._documents.get(path)
        if found is None:
            group, version = self._paths[path]
            found = self._documents[path] = Document(self._schemas.openapi_v3(group, version))
        return found

    def v2(self, accept: str) -> Document | None:
        """Only clients of long ago need it; they get an empty document and go on without."""
        info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
        return Document({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
