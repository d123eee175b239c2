"""OpenAPI documents, made of the schemas when first asked for, and again when a kind that is defined changes."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from dray.apiserver import openapi_v2
from dray.apiserver.discovery import VERSION, Document
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.schema import Schemas
from dray.apiserver.store import encode


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
        self._index: Document | None = None
        self._v2: dict[bool, Document] = {}

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

    def v2(self, *, protobuf: bool) -> Document:
        """All kinds in one document, as clients had it before version 3."""
        if protobuf not in self._v2:
            whole = openapi_v2.document(map(self._made, self._paths), VERSION["gitVersion"])
            self._v2[protobuf] = Document(openapi_v2.protobuf(whole), openapi_v2.PROTOBUF) if protobuf else Document(whole)
        return self._v2[protobuf]


def _defined(resources: list[Resource]) -> bool:
    return any(resource.structure is not None for resource in resources)


def _tag(resources: list[Resource]) -> str:
    """Changes when the document does."""
    said: Any = VERSION["gitVersion"]
    if _defined(resources):
        said = [said, [[r.kind.plural, r.list_name, r.structure.published] for r in resources if r.structure is not None]]
    return sha256(encode(said)).hexdigest()[:32].upper()
