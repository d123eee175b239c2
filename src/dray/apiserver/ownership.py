"""Who set which field: managedFields of created and updated objects.

A client cannot set managedFields itself, except to an empty list, which forgets them.
"""

from __future__ import annotations

from typing import Any

from dray.apiserver.registry import Resource
from dray.apiserver.schema import Schemas


class Ownership:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def created(self, resource: Resource, obj: dict[str, Any], manager: str, now: float, given: dict[str, Any]) -> None:
        obj["metadata"].pop("managedFields", None)

    def updated(
        self,
        resource: Resource,
        obj: dict[str, Any],
        old: dict[str, Any],
        manager: str,
        now: float,
        subresource: str,
        given: dict[str, Any],
    ) -> None:
        obj["metadata"].pop("managedFields", None)
