"""Patches: a stored object and a client's patch become the object to store.

``apply_patch`` knows the four media types. Nothing is changed in place, and the cost is bounded by the sizes of object and
patch and by ``MAX_OPERATIONS``. What a patch may not do is told by ``PatchError``, which carries the HTTP code and the
reason of the Status.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final

from dray.apiserver.patch_errors import PatchError, Untrue, refused, unreadable
from dray.apiserver.patch_strategic import strategic_merge
from dray.apiserver.schema import KindLike, Schemas

__all__ = ["APPLY", "JSON", "MAX_OPERATIONS", "MERGE", "STRATEGIC", "PatchError", "apply_patch", "json_patch", "merge_patch"]

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
MAX_OPERATIONS: Final = 10_000
_INDEX: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)


def apply_patch(type_: str, current: dict[str, Any], patch: Any, kind: KindLike, schemas: Schemas) -> dict[str, Any]:
    """The object after a JSON, merge or strategic merge patch. (Apply patches need managedFields: ``managed_fields.apply``.)"""
    if type_ == JSON:
        return json_patch(current, patch)
    if not isinstance(patch, dict):
        raise unreadable(f"a patch of type {type_} must be a JSON object")
    if type_ == MERGE:
        merged: dict[str, Any] = merge_patch(current, patch)
        return merged
    if type_ == STRATEGIC:
        struct = schemas.kind(kind) if schemas.custom(kind) is None else None
        if struct is None:
            raise PatchError(415, "UnsupportedMediaType", f"{kind.kind} does not support strategic merge patches; use {MERGE}")
        return strategic_merge(current, patch, struct, schemas)
    supported = ", ".join((JSON, MERGE, STRATEGIC, APPLY))
    raise PatchError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {supported}",
    )


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    made = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge_patch(made.get(key), value)
    return made


def json_patch(current: dict[str, Any], operations: Any) -> dict[str, Any]:
    """RFC 6902: all operations in order, or none."""
    if not isinstance(operations, list):
        raise unreadable(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch: a JSON patch is a list of operations"
        )
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
        )
    document: Any = copy.deepcopy(current)
    budget = _Budget(len(operations))
    for operation in operations:
        document = _operate(document, operation, budget)
    if not isinstance(document, dict):
        raise refused("the patch does not leave an object")
    return document


class _Budget:
    """Bounds what ``copy`` operations may make: each may double the document, so the total is counted."""

    def __init__(self, operations: int) -> None:
        self.left = 1_000_000 + 100 * operations

    def spend(self, value: Any) -> None:
        stack = [value]
        while stack:
            part = stack.pop()
            self.left -= 1 + (len(part) // 64 if isinstance(part, str) else 0)
            if self.left < 0:
                raise PatchError(413, "RequestEntityTooLarge", "the copy operations of this JSON patch make too much")
            if isinstance(part, dict | list):
                stack.extend(part.values() if isinstance(part, dict) else part)


def _operate(document: Any, operation: Any, budget: _Budget) -> Any:
    if not isinstance(operation, dict):
        raise unreadable("each operation of a JSON patch is an object with op and path")
    op, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise refused(f"operation {op!r} has no path")
    if op == "add":
        return _add(document, path, copy.deepcopy(operation.get("value")))
    if op == "remove":
        return _remove(document, path)
    if op == "replace":
        return _put(document, path, copy.deepcopy(operation.get("value")))
    if op == "test":
        return _test(document, path, operation.get("value"))
    if op in ("move", "copy"):
        return _transfer(document, op, operation, path, budget)
    raise refused(f"Unexpected kind: {op}")


def _transfer(document: Any, op: str, operation: dict[str, Any], path: str, budget: _Budget) -> Any:
    source = operation.get("from")
    if not isinstance(source, str):
        raise refused(f"{op} operation has no from")
    if op == "copy":
        value = _look(document, source, op)
        budget.spend(value)
        return _add(document, path, copy.deepcopy(value))
    value = _find(document, source, op)
    if path.startswith(f"{source}/"):
        raise refused(f"move operation does not apply: {path!r} is inside of {source!r}")
    return _add(_remove(document, source), path, value)


def _test(document: Any, path: str, value: Any) -> Any:
    try:
        found = _find(document, path, "test")
    except PatchError:
        found = None
    if not _same(found, value):
        raise Untrue(422, "Invalid", f"testing value {path} failed: test failed")
    return document


def _same(left: Any, right: Any) -> bool:
    """JSON equality: a bool is not a number."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise refused(f"path {path!r} must be empty or start with a slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _parent(document: Any, path: str, op: str) -> tuple[Any, str]:
    *way, last = _tokens(path)
    for token in way:
        document = _child(document, token, path, op)
    if not isinstance(document, dict | list):
        raise _missing(path, op)
    return document, last


def _find(document: Any, path: str, op: str) -> Any:
    for token in _tokens(path):
        document = _child(document, token, path, op)
    return document


def _look(document: Any, path: str, op: str) -> Any:
    """As ``_find``; what its parent lacks is null."""
    if path == "":
        return document
    parent, last = _parent(document, path, op)
    return parent.get(last) if isinstance(parent, dict) else parent[_index(last, len(parent) - 1, path, op)]


def _child(parent: Any, token: str, path: str, op: str) -> Any:
    if isinstance(parent, dict) and token in parent:
        return parent[token]
    if isinstance(parent, list):
        return parent[_index(token, len(parent) - 1, path, op)]
    raise _missing(path, op)


def _index(token: str, last: int, path: str, op: str) -> int:
    """The place that a token means; negative ones count from the end."""
    if not _INDEX.fullmatch(token):
        raise refused(f"{op} operation does not apply: {token!r} of {path!r} is not an index")
    index = int(token)
    if index < 0:
        index += last + 1
    if not 0 <= index <= last and op in ("add", "remove"):
        raise refused(f"error in {op} for path: '{path}': Unable to access invalid index: {index}: invalid index referenced")
    if not 0 <= index <= last:
        raise refused(f"{op} operation does not apply: doc is missing path: {json.dumps(path)}: invalid array index {index}")
    return index


def _missing(path: str, op: str) -> PatchError:
    if op in ("add", "remove"):
        return refused(f"{op} operation does not apply: doc is missing path: {json.dumps(path)}: missing value")
    what = "from path" if op in ("copy", "move") else "path"
    return refused(f"{op} operation does not apply: doc is missing {what}: {path}: missing value")


def _add(document: Any, path: str, value: Any) -> Any:
    if path == "":
        raise _missing(path, "add")
    parent, last = _parent(document, path, "add")
    if isinstance(parent, dict):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    else:
        parent.insert(_index(last, len(parent), path, "add"), value)
    return document


def _put(document: Any, path: str, value: Any) -> Any:
    """What is not there yet is added, as kube-apiserver does against RFC 6902; its parent must be there."""
    if path == "":
        return value
    parent, last = _parent(document, path, "replace")
    parent[last if isinstance(parent, dict) else _index(last, len(parent) - 1, path, "replace")] = value
    return document


def _remove(document: Any, path: str) -> Any:
    if path == "":
        raise _missing(path, "remove")
    parent, last = _parent(document, path, "remove")
    if isinstance(parent, dict) and last not in parent:
        raise refused(f"error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value")
    del parent[last if isinstance(parent, dict) else _index(last, len(parent) - 1, path, "remove")]
    return document
