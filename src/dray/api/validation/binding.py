"""What a device brings along to its allocation: binding conditions, and node operations that its driver does not need."""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.validation.errors import Errors, each, invalid, named, not_supported, unique

MAX_CONDITIONS: Final = 4
OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")


def binding_conditions(owner: dict[str, Any], path: str) -> Errors:
    """Both lists or neither, each without repetition, and no condition in both."""
    ready, failed = owner.get("bindingConditions") or [], owner.get("bindingFailureConditions") or []
    places = (f"{path}.bindingConditions", f"{path}.bindingFailureConditions")
    for listed, place in zip((ready, failed), places, strict=True):
        yield from each(listed, MAX_CONDITIONS, place, lambda item, at: named(names.qualified_name, item, at))
        yield from unique(listed, place, lambda item: item)
    known = set(ready)
    for index, condition in enumerate(failed):
        if condition in known:
            yield invalid(f"{places[1]}[{index}]", condition, "bindingFailureConditions must not overlap with bindingConditions")
    if failed and not ready:
        yield invalid(places[0], None, "bindingConditions are required to use bindingFailureConditions")
    if ready and not failed:
        yield invalid(places[1], None, "bindingFailureConditions are required to use bindingConditions")


def skipped_operations(operations: list[str] | None, path: str) -> Errors:
    for index, operation in enumerate(operations or ()):
        if operation not in OPERATIONS:
            yield not_supported(f"{path}[{index}]", operation, OPERATIONS)
    yield from unique(operations, path, lambda item: item)
    listed = set(operations or ())
    if "NodePrepareResources" in listed and not listed & {"*", "NodeUnprepareResources"}:
        yield invalid(path, operations, "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped")
