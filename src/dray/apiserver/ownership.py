"""Who set which field: managedFields of created and updated objects.

What a client sends as managedFields of an existing object counts (kubectl moves ownership that way); an empty list forgets
them, and without any those that are stored go on.
"""

from __future__ import annotations

from typing import Any

from dray.apiserver.managed_fields import ManagedFields, Stored
from dray.apiserver.registry import Resource
from dray.apiserver.schema import Schemas


class Ownership:
    def __init__(self, schemas: Schemas) -> None:
        self.fields = ManagedFields(schemas)

    def record(
        self,
        resource: Resource,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        given: Any,
        *,
        manager: str,
        now: float,
        subresource: str = "",
    ) -> None:
        """Give ``manager`` the fields in which ``obj`` differs from ``old``. ``given`` is the metadata that the client sent."""
        metadata = obj["metadata"]
        sent = given.get("managedFields") if isinstance(given, dict) else None
        if old is None:
            metadata["managedFields"] = []
        elif not metadata.get("managedFields"):
            metadata["managedFields"] = [] if sent == [] else old["metadata"].get("managedFields") or []
        entries = self.fields.updated(
            Stored(obj["apiVersion"], obj["kind"]),
            obj,
            old,
            manager=manager,
            now=now,
            subresource=subresource,
            has_status=resource.has_status,
        )
        if entries:
            metadata["managedFields"] = entries
        else:
            del metadata["managedFields"]
