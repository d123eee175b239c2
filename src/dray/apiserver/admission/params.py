"""The objects that a binding gives its policy as ``params``: one by its name, or all that a selector finds."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.core import LabelSelector
from dray.api.selectors import selects
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.store import Store

Object = dict[str, Any]


class ConfigurationError(Exception):
    """A policy or binding cannot be used as it is; its failure policy says what that means."""


def kind_of(registry: Registry, given: Object | None) -> Resource | None:
    """The resource of a ``paramKind``."""
    if given is None:
        return None
    version, kind = given.get("apiVersion") or "", given.get("kind") or ""
    found = registry.of_kind(version, kind)
    if found is None:
        shown = version if "/" in version else f"/{version}"
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{shown}, Kind={kind}'")
    return found


def collect(store: Store, resource: Resource | None, reference: Object | None, namespace: str) -> list[Object | None]:
    """Those to evaluate a policy with, one after the other; no object at all where none is asked for."""
    if resource is None or reference is None:
        return [None]
    place = _namespace(resource, reference, namespace)
    name, selector = reference.get("name") or "", reference.get("selector")
    table = store.table(resource.storage)
    found: list[Object]
    if name:
        entry = table.entries.get(f"{place}/{name}" if resource.kind.namespaced else name)
        found = [] if entry is None else [entry.object]
    else:
        wanted = msgspec.convert(selector or {}, LabelSelector)
        listed = (entry.look() for _, entry in table.scan(f"{place}/" if resource.kind.namespaced else ""))
        found = [obj for obj in listed if selects(wanted, obj["metadata"].get("labels") or {})]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [obj if resource.from_stored is None else resource.from_stored(obj) for obj in found]


def _namespace(resource: Resource, reference: Object, namespace: str) -> str:
    given = reference.get("namespace") or ""
    if not resource.kind.namespaced:
        if given:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not given and not namespace:
        raise ConfigurationError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return given or namespace
