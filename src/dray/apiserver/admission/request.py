"""One write as admission sees it: who does what to which object, in the version that a policy is written for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.kinds import Kind
from dray.apiserver.authentication.users import User
from dray.apiserver.registry import Resource

Object = dict[str, Any]

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
CONNECT: Final = "CONNECT"


class AdmissionRequest:
    """``object`` and ``old`` are as they are stored; what is not is None. ``kind`` is that of the object, if it is not the
    resource's own: then the object is as it was sent. ``options`` are those of the request."""

    __slots__ = (
        "dry_run",
        "kind",
        "name",
        "namespace",
        "object",
        "old",
        "operation",
        "options",
        "resource",
        "subresource",
        "user",
        "warnings",
    )

    def __init__(
        self,
        operation: str,
        resource: Resource,
        namespace: str,
        name: str,
        object: Object | None,
        old: Object | None,
        *,
        user: User,
        options: Object | None,
        warnings: list[str],
        dry_run: bool = False,
        subresource: str = "",
        kind: Kind | None = None,
    ) -> None:
        self.operation, self.resource, self.subresource = operation, resource, subresource
        # Requests for a namespace are made in it.
        itself = resource.kind.resource == "namespaces" and operation != CREATE
        self.namespace, self.name = name if itself else namespace, name
        self.object, self.old, self.kind = object, old, kind
        self.user, self.options, self.warnings, self.dry_run = user, options, warnings, dry_run

    def kind_in(self, matched: Resource) -> Kind:
        return self.kind or matched.kind

    def seen(self, obj: Object | None, matched: Resource) -> Object | None:
        """An object in the version of the resource that a policy was matched by."""
        if obj is None or self.kind is not None or matched.from_stored is None:
            return obj
        return matched.from_stored(obj)

    def described(self, matched: Resource) -> Object:
        """``request`` in expressions. Fields that are empty are absent."""
        asked, kind = self.resource.kind, self.kind_in(matched)
        own = self.kind or asked
        made: Object = {
            "kind": _kind(kind),
            "resource": _resource(matched.kind),
            "requestKind": _kind(own),
            "requestResource": _resource(asked),
            "operation": self.operation,
            "userInfo": self.user.info,
            "dryRun": self.dry_run,
        }
        if self.options is not None:
            made["options"] = self.options
        texts = {
            "subResource": self.subresource,
            "requestSubResource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
        }
        return made | {field: value for field, value in texts.items() if value}


def _kind(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def operation_options(operation: str, query: Mapping[str, str], dry_run: bool, body: Object | None = None) -> Object | None:
    """``request.options``: what came as query parameters, or as the body of a delete. A connection has none."""
    kinds = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}
    if operation not in kinds:
        return None
    made: Object = {"kind": kinds[operation], "apiVersion": "meta.k8s.io/v1", **(body or {})}
    if dry_run:
        made["dryRun"] = ["All"]
    if operation != DELETE:
        made |= {field: query[field] for field in ("fieldManager", "fieldValidation") if query.get(field)}
    return made


def connection_options(kind: Kind, query: Mapping[str, str]) -> Object:
    """The object of a CONNECT: how somebody wants to be connected."""
    made: Object = {"kind": kind.kind, "apiVersion": kind.api_version}
    for field in ("stdin", "stdout", "stderr", "tty"):
        if query.get(field) in ("true", "1"):
            made[field] = True
    made |= {field: query[field] for field in ("container", "path") if query.get(field)}
    if query.get("command"):
        made["command"] = [query["command"]]
    return made
