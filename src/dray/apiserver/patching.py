"""Patch requests: which sort of patch, on what, and the write that it becomes.

A patch that names a resourceVersion or uid holds only for that; any other is applied to what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dray.api.kinds import Kind
from dray.apiserver.errors import ApiError, bad_request, conflict
from dray.apiserver.intake import media_type, read_body, read_json, unsupported
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.patch import APPLY, JSON, MERGE, STRATEGIC, PatchError, apply_patch
from dray.apiserver.queries import flag
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
            return self._applied(resource, namespace, name, subresource, request, options)
        patch = self._read(type_, request, options)
        return 200, self.patched(resource, namespace, name, subresource, type_, patch, options)

    def _applied(
        self, resource: Resource, namespace: str, name: str, subresource: str, request: Request, options: WriteOptions
    ) -> tuple[int, Entry]:
        """Server-side apply: creates what is not there. It is done in the version that is stored."""
        operations, manager = self._operations, request.query.get("fieldManager", "")
        asked = "fieldValidation" in request.query
        patch = read_body(request.body, "application/yaml", options if asked else None)
        options.applied = True
        force = flag(request.query, "force") or False

        def change(current: Object | None) -> Object:
            try:
                made = operations.ownership.fields.apply(
                    resource.kind,
                    current,
                    patch,
                    manager=manager,
                    now=operations.clock(),
                    subresource=subresource,
                    has_status=resource.has_status,
                    force=force,
                    to_stored=resource.to_stored,
                )
            except PatchError as error:
                raise patch_refused(error) from error
            # Who gives up the last label or annotation that it owns gives up the metadata around it, but never the name.
            made.setdefault("metadata", {}).setdefault("name", name)
            return made if resource.from_stored is None else resource.from_stored(made)

        if operations.find(resource, namespace, name) is None and not subresource:
            return 201, operations.create(resource, namespace, _new(change(None), resource.kind, name), options)
        entry = operations.update(resource, namespace, name, change, options, subresource=subresource, unconditional=False)
        return 200, entry

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


def _new(obj: Object, kind: Kind, name: str) -> Object:
    """What an apply makes, if the client did not mean one that was there: a version says nothing, a uid does."""
    metadata = obj["metadata"]
    if metadata["name"] != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if uid := metadata.get("uid"):
        raise conflict(kind, name, f"uid mismatch: the provided object specified uid {uid}, and no existing object was found")
    metadata.pop("resourceVersion", None)
    return obj


def patch_refused(error: PatchError) -> ApiError:
    return ApiError(error.code, error.reason, error.message, {"causes": error.causes} if error.causes else None)
