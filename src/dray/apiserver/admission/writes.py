"""What a write asks admission: whether there is anybody to ask, what they make of an object, and whether they allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dray.api.defaults import apply_defaults
from dray.api.kinds import Kind
from dray.apiserver import metadata as meta
from dray.apiserver.admission.gate import Gate
from dray.apiserver.admission.request import AdmissionRequest, operation_options
from dray.apiserver.deletion import DeleteOptions
from dray.apiserver.registry import Resource

if TYPE_CHECKING:
    from dray.apiserver.operations import WriteOptions


class Admission:
    """``gate`` is None where nobody is asked; the cluster itself never asks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.gate: Gate | None = None

    def asks(self, resource: Resource, options: WriteOptions) -> bool:
        """Whether there may be policies about such a write."""
        return self.gate is not None and options.caller is not None and self.gate.validates(resource)

    def mutates(self, resource: Resource, options: WriteOptions) -> bool:
        """Whether there may be policies that change such a write."""
        return self.gate is not None and options.caller is not None and self.gate.mutates(resource)

    def mutate(
        self,
        operation: str,
        resource: Resource,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        options: WriteOptions,
        *,
        subresource: str = "",
        kind: Kind | None = None,
        fill: Callable[[dict[str, Any]], None] = lambda obj: None,
    ) -> dict[str, Any]:
        """The object as policies make it. ``kind`` as for ``validate``; ``fill`` is what else sets fields before policies do."""
        assert self.gate is not None, "whoever calls this has asked whether to"
        request = _request(operation, resource, namespace, name, obj, old, options, subresource=subresource, kind=kind)

        def default(made: dict[str, Any]) -> None:
            if kind is None:
                made["metadata"] = dict(made.get("metadata") or {})
                meta.tidy(made["metadata"])
                if resource.structure is None:
                    apply_defaults(resource.kind.plural, made, self.clock())

        self.gate.mutate(request, default, fill)
        assert request.object is not None
        return request.object

    def validate(
        self,
        operation: str,
        resource: Resource,
        namespace: str,
        name: str,
        obj: dict[str, Any] | None,
        old: dict[str, Any] | None,
        options: WriteOptions,
        *,
        subresource: str = "",
        kind: Kind | None = None,
        body: DeleteOptions | None = None,
    ) -> None:
        """Ask the policies. ``kind`` is that of the object if it is not the resource's, ``body`` what a delete came with."""
        assert self.gate is not None, "whoever calls this has asked whether to"
        self.gate.validate(
            _request(operation, resource, namespace, name, obj, old, options, subresource=subresource, kind=kind, body=body)
        )


def _request(
    operation: str,
    resource: Resource,
    namespace: str,
    name: str,
    obj: dict[str, Any] | None,
    old: dict[str, Any] | None,
    options: WriteOptions,
    *,
    subresource: str,
    kind: Kind | None,
    body: DeleteOptions | None = None,
) -> AdmissionRequest:
    assert options.caller is not None
    given = {field: value for field, value in msgspec.to_builtins(body).items() if value is not None} if body else None
    return AdmissionRequest(
        operation,
        resource,
        namespace,
        name,
        obj,
        old,
        user=options.caller.user,
        options=operation_options(operation, options.query, options.dry_run, given),
        warnings=options.warnings,
        dry_run=options.dry_run,
        subresource=subresource,
        kind=kind,
    )
