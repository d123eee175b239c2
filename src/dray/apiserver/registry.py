"""What it means for a kind to be served: its declaration, and how requests find it.

A kind is a few lines in ``catalog``. Its behaviour beyond the common one is in hooks: functions of the new object, the old
one (None on create) and the ``Context``. Hooks change only the new object, which belongs to the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.api.validation.errors import FieldError
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.columns import DEFAULT, Column
from dray.apiserver.schema import Structure
from dray.apiserver.store import Entry

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Context(msgspec.Struct, frozen=True):
    """What hooks may know besides the objects. ``find(resource, namespace, name)`` reads another object;
    ``warnings`` are told to the client; ``caller`` is None when the cluster itself writes."""

    now: float
    gates: Gates
    find: Callable[[str, str, str], dict[str, Any] | None]
    every: Callable[[str, str], Iterable[dict[str, Any]]]
    subresource: str = ""
    warnings: list[str] = []
    caller: Caller | None = None


class ScalePaths(msgspec.Struct, frozen=True):
    """Where the numbers of a scale subresource are; ``selector`` is where it is as text, if anywhere."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


Hook = Callable[[dict[str, Any], dict[str, Any] | None, Context], None]
Check = Callable[[dict[str, Any], dict[str, Any] | None, Context], Iterable[FieldError]]
View = Callable[[dict[str, Any]], dict[str, Any]]
After = Callable[[Entry, bool], None]


class Subresource(msgspec.Struct, frozen=True):
    """A path below an object. ``kind`` is what discovery says it takes and gives; empty means the parent's."""

    name: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""


# What a write of the status leaves alone of kinds that keep all of their metadata apart.
ALL_METADATA: Final = ("annotations", "finalizers", "labels", "ownerReferences")
STATUS: Final = Subresource("status", ("get", "patch", "update"))
SCALE: Final = Subresource("scale", ("get", "patch", "update"), "autoscaling", "v1", "Scale")
BINDING: Final = Subresource("binding", ("create",), "", "v1", "Binding")
EVICTION: Final = Subresource("eviction", ("create",), "policy", "v1", "Eviction")
TOKEN: Final = Subresource("token", ("create",), "authentication.k8s.io", "v1", "TokenRequest")
APPROVAL: Final = Subresource("approval", ("get", "patch", "update"))
FINALIZE: Final = Subresource("finalize", ("update",))


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one served kind.

    fields: selectable fields besides name and namespace, with the value that an absent one has.
    field_paths: where the value of a selectable field is found, if not at the path that it is named by; the first that is set.
    generation: counts changes outside metadata and status.
    keeps_status: status may be given on create.
    filled: those of the other hooks that set fields which policies see before they change something; may be called again.
    status_metadata: what of the metadata a write of the status leaves alone.
    any_finalizer: names of finalizers need no domain.
    table: where objects are stored; two kinds with one table are two views of the same objects.
    structure: the schema of a kind that is defined while the server runs; such kinds have no rules besides it.
    leaving: makes an object that is about to be deleted ready for it.
    after: told of every object that was stored, and of every one that was removed.
    warning: told to everybody who uses the kind.
    exact: a part in which an unknown field is always refused, because without it the rest would be about more than was meant.
    """

    kind: Kind
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    fields: Mapping[str, str] = {}
    field_paths: Mapping[str, tuple[str, ...]] = {}
    columns: tuple[Column, ...] = DEFAULT
    generation: bool = False
    names: str = "subdomain"
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    keeps_status: bool = False
    status_metadata: tuple[str, ...] = ()
    any_finalizer: bool = False
    prepare: tuple[Hook, ...] = ()
    filled: tuple[Hook, ...] = ()
    prepare_status: tuple[Hook, ...] = ()
    admit: tuple[Hook, ...] = ()
    check: tuple[Check, ...] = ()
    table: str = ""
    to_stored: View | None = None
    from_stored: View | None = None
    structure: Structure | None = None
    scale: ScalePaths | None = None
    list_kind: str = ""
    stored_version: str = ""
    leaving: Callable[[Entry], Entry] | None = None
    after: tuple[After, ...] = ()
    warning: str = ""
    exact: str = ""

    @property
    def has_status(self) -> bool:
        return STATUS in self.subresources

    @property
    def storage(self) -> str:
        return self.table or self.kind.resource

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind.kind}List"

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.kind.lower()

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class Registry:
    """The served kinds, by where they are found. ``changes`` counts how often what is served has changed."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._declared = tuple(resources)
        self.changes = 0
        self.extend(())

    def extend(self, defined: Iterable[Resource]) -> None:
        """Serve these besides the declared ones, instead of those before. What is declared cannot be replaced by them."""
        self.resources = (*self._declared, *defined)
        self._by_path = {(r.kind.group, r.kind.version, r.kind.plural): r for r in reversed(self.resources)}
        self._by_name = {r.kind.resource: r for r in reversed(self.resources)}
        self._views: dict[str, list[Resource]] = {}
        for each in self.resources:
            self._views.setdefault(each.storage, []).append(each)
        self.changes += 1

    def replace(self, resource: Resource) -> None:
        """Give a declared kind the hooks of one server."""
        self._declared = tuple(resource if each.kind == resource.kind else each for each in self._declared)
        self.extend(())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def of(self, kind: Kind) -> Resource:
        found = self.find(kind.group, kind.version, kind.plural)
        if found is None:
            raise KeyError(f"{kind.api_version} {kind.plural} is not served")
        return found

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        return next((r for r in self.resources if r.kind.kind == kind and r.kind.api_version == api_version), None)

    def views(self, resource: Resource) -> list[Resource]:
        """All that show the objects of this one, itself included: its other versions."""
        return self._views.get(resource.storage, [])

    def named(self, resource: str) -> Resource:
        """By ``plural.group``, in its first version."""
        return self._by_name[resource]

    @property
    def owned(self) -> tuple[Kind, ...]:
        """The kinds that can have owners and be emptied with a namespace: each stored kind once, events left out."""
        cared = ("delete", "list", "watch")
        found = (r for r in self.resources if r.kind.plural != "events" and all(verb in r.verbs for verb in cared))
        return tuple({r.storage: r.kind for r in reversed(tuple(found))}.values())

    def group_versions(self) -> dict[str, dict[str, list[Resource]]]:
        """group -> version -> resources, in the order of declaration (the first version is preferred), then defined ones."""
        groups: dict[str, dict[str, list[Resource]]] = {}
        for resource in self.resources:
            groups.setdefault(resource.kind.group, {}).setdefault(resource.kind.version, []).append(resource)
        declared = {resource.kind.group for resource in self._declared}
        for group, versions in groups.items():
            if group not in declared:
                groups[group] = dict(sorted(versions.items(), key=lambda item: version_priority(item[0])))
        return groups


_VERSION: Final = re.compile(r"v(\d{1,9})(?:(alpha|beta)(\d{1,9}))?", re.ASCII)
_STAGES: Final = {"": 2, "beta": 1, "alpha": 0}


def version_priority(name: str) -> tuple[int, int, int, int, str]:
    """For sorting, the most stable and newest first: v2, v1, v2beta1, v1beta2, v1alpha1, then all others by name."""
    found = _VERSION.fullmatch(name)
    if found is None:
        return (1, 0, 0, 0, name)
    return (0, -_STAGES[found[2] or ""], -int(found[1]), -int(found[3] or 0), name)
