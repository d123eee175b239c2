"""Patch requests: which sort of patch, on what, and the write that it becomes.

A patch that names a resourceVersion or uid holds only for that; any other is applied to what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dray.api.kinds import Kind
from dray.apiserver.errors import ApiError
from dray.apiserver.intake import media_type, read_json, unsupported
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.patch import APPLY, JSON, MERGE, STRATEGIC, PatchError, apply_patch
from dray.apiserver.registry import Resource
from dray.apiserver.store import Entry

if TYPE_CHECKING:
    from dray.apiserver.api import Request

Object = dict[str, Any]
_ACCEPTED: Final = ", ".join((JSON, MERGE, STRATEGIC, APPLY))
_SCALE: Final = Kind("autoscaling", "v1", "scales", "Scale", True)


class Patching:
    def __init__(self, operations: Operations) -> None:
        self._operations, self._schemas = operations, operations.schemas

    def patch(
        self, resource: Resource, namespace: str, name: str, subresource: str, request: Request, options: WriteOptions
    ) -> tuple[int, Entry]:
        type_ = media_type(request.content_type)
        if type_ == APPLY:
            raise unsupported(_ACCEPTED)
        patch = self._read(type_, request, options)
        return 200, self.patched(resource, namespace, name, subresource, type_, patch, options)

    def patched(
        self, resource: Resource, namespace: str, name: str, subresource: str, type_: str, patch: Any, options: WriteOptions
    ) -> Entry:
        def change(current: Object) -> Object:
            if resource.from_stored is not None:
                current = resource.from_stored(current)
            return self._apply(type_, current, patch, resource.kind)

        return self._operations.update(resource, namespace, name, change, options, subresource=subresource, unconditional=False)

    def change_of_scale(self, request: Request) -> Callable[[Object], Object]:
        type_ = media_type(request.content_type)
        patch = self._read(type_, request, None)

        def change(scale: Object) -> Object:
            return self._apply(type_, scale, patch, _SCALE)

        return change

    def _read(self, type_: str, request: Request, options: WriteOptions | None) -> Any:
        if type_ not in (JSON, MERGE, STRATEGIC):
            raise unsupported(_ACCEPTED)
        asked = "fieldValidation" in request.query
        return read_json(request.body, options if asked else None)

    def _apply(self, type_: str, current: Object, patch: Any, kind: Kind) -> Object:
        try:
            return apply_patch(type_, current, patch, kind, self._schemas)
        except PatchError as error:
            raise patch_refused(error) from error


def patch_refused(error: PatchError) -> ApiError:
    return ApiError(error.code, error.reason, error.message, {"causes": error.causes} if error.causes else None)
