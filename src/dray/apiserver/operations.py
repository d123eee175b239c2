"""What happens to objects: create, update, delete. The one path that every write takes, whoever asks.

Order of a write: the object as given is made what its kind's schema allows, then the kind's hooks default and prepare it,
then everything is checked, and only then is it stored. A write that changes nothing is not stored and keeps its
resourceVersion.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from dray.api.defaults import apply_defaults, apply_status_defaults
from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.api.stripping import strip_disabled
from dray.api.times import format_time
from dray.api.validation import FieldError, validate_create, validate_update
from dray.apiserver import limits
from dray.apiserver import metadata as meta
from dray.apiserver.admission.request import CREATE, DELETE, UPDATE
from dray.apiserver.admission.writes import Admission
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.deletion import DeleteOptions, Deletion, Removal
from dray.apiserver.errors import already_exists, bad_request, conflict, forbidden, invalid, modified, not_found
from dray.apiserver.ownership import Ownership
from dray.apiserver.quotas import Quotas
from dray.apiserver.registry import ALL_METADATA, Context, Registry, Resource
from dray.apiserver.schema import Schemas
from dray.apiserver.store import Entry, Store, Table, not_stored

Change = Callable[[dict[str, Any]], dict[str, Any]]

NAMES_TRIED: Final = 8
# The writes of an object by which it can come to ask for more.
CHARGED: Final = ("", "resize")
# What is created below an object is shown to policies as what it is, not as a change of the object.
ASKED_BEFORE: Final = ("binding",)
PROTECTED_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})

# So few objects that are looked at with every write of another stay decoded.
_FEW: Final = 16


class WriteOptions(msgspec.Struct):
    """How a write is done. ``applied``: the object comes with its managedFields. ``repeated``: fields that the body has twice.
    ``warnings``: what the client shall be told. ``caller``: who writes; None for the cluster itself, which may do everything
    and is not asked by policies. ``query`` is that of the request."""

    dry_run: bool = False
    manager: str = "unknown"
    validation: str = "Warn"
    applied: bool = False
    repeated: list[str] = msgspec.field(default_factory=list)
    caller: Caller | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    query: Mapping[str, str] = msgspec.field(default_factory=dict)


class Seen(msgspec.Struct, frozen=True):
    """What policies see of a write below an object, where that is of another kind than the object: the kind, and its object."""

    kind: Kind
    of: Callable[[dict[str, Any]], dict[str, Any]]


class Operations:
    """Reads and writes of single objects, with the semantics of the API. Time and randomness are given."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        schemas: Schemas,
        *,
        gates: Gates,
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        self.registry, self.store, self.schemas, self.gates = registry, store, schemas, gates
        self.clock, self.randomness = clock, randomness
        self.ownership = Ownership(schemas)
        self._deletion = Deletion(clock)
        self._namespaces = store.table("namespaces")
        self._quotas = Quotas(registry, store, gates)
        self.admission = Admission(clock)

    # ------------------------------------------------------------------------------------------------------------- reads

    def table(self, resource: Resource) -> Table:
        return self.store.table(resource.storage)

    def find(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        return self.table(resource).entries.get(key_of(resource, namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        found = self.find(resource, namespace, name)
        if found is None:
            raise not_found(resource.kind, name)
        return found

    def context(self, options: WriteOptions, subresource: str = "") -> Context:
        return Context(self.clock(), self.gates, self._find, self._every, subresource, options.warnings, options.caller)

    def _find(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        found = self.find(self.registry.named(resource), namespace, name)
        return found.object if found is not None else None

    def _every(self, resource: str, namespace: str) -> Iterable[dict[str, Any]]:
        table = self.store.table(self.registry.named(resource).storage)
        if not table.entries:
            return ()
        found = table.scan(f"{namespace}/" if namespace else "")
        if len(found) <= _FEW:
            return [entry.object for _, entry in found]
        return (entry.look() for _, entry in found)

    # ------------------------------------------------------------------------------------------------------------ create

    def create(self, resource: Resource, namespace: str, given: dict[str, Any], options: WriteOptions) -> Entry:
        obj = self.normalised(resource, given, options)
        if options.caller is not None:
            options.caller.require_create()
        _place(resource, obj, namespace)
        self._namespace_open(resource, namespace, obj)
        if obj["metadata"].get("resourceVersion", "0") not in ("", "0"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        context = self.context(options)
        table = self.table(resource)
        key = self._free_key(resource, namespace, obj["metadata"], table)
        self._default_new(resource, obj, context)
        if options.applied:
            _keep_managed(obj, given)
        else:
            self.ownership.record(resource, obj, None, given.get("metadata"), manager=options.manager, now=context.now)
        # What is added from here on nobody owns: an apply of what was sent leaves it where it is.
        if self.admission.mutates(resource, options):
            obj = self._changed_new(resource, namespace, obj, given, context, options)
            key = self._free_key(resource, namespace, obj["metadata"], table)
        for prepare in resource.prepare:
            prepare(obj, None, context)
        self._check(resource, obj, None, context)
        for hook in resource.admit:
            hook(obj, None, context)
        limits.check(resource, obj, None, context)
        if self.admission.asks(resource, options):
            self.admission.validate(CREATE, resource, namespace, obj["metadata"]["name"], obj, None, options)
        charged = self._quotas.admit(resource, namespace, obj, None, context.now)
        if options.dry_run:
            return not_stored(obj)
        stored = self._stored(resource, self.store.put(table, key, obj))
        if charged:
            self._quotas.settle(namespace, context.now)
        return stored

    def _changed_new(
        self,
        resource: Resource,
        namespace: str,
        obj: dict[str, Any],
        given: dict[str, Any],
        context: Context,
        options: WriteOptions,
    ) -> dict[str, Any]:
        """A new object as policies change it. They do not see what the server gives it in the end."""
        own = {field: obj["metadata"].pop(field) for field in OF_THE_SERVER if field in obj["metadata"]}
        name = (given.get("metadata") or {}).get("name") or ""
        if not name:
            own["name"] = obj["metadata"].pop("name")

        def fill(new: dict[str, Any]) -> None:
            new["metadata"] |= own
            for hook in resource.filled:
                hook(new, None, context)
            for field in own:
                new["metadata"].pop(field, None)

        fill(obj)
        obj = self.admission.mutate(CREATE, resource, namespace, name, obj, None, options, fill=fill)
        obj["metadata"] = own | {field: value for field, value in obj["metadata"].items() if field not in OF_THE_SERVER}
        _place(resource, obj, namespace)
        self._complete_new(resource, obj, context)
        return obj

    def _stored(self, resource: Resource, entry: Entry, removed: bool = False) -> Entry:
        for hook in resource.after:
            hook(entry, removed)
        return entry

    def _default_new(self, resource: Resource, obj: dict[str, Any], context: Context) -> None:
        metadata = obj["metadata"]
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(field, None)
        metadata["uid"] = meta.new_uid(self.randomness)
        metadata["creationTimestamp"] = format_time(context.now)
        self._complete_new(resource, obj, context)

    def _complete_new(self, resource: Resource, obj: dict[str, Any], context: Context) -> None:
        """What a new object has if nobody says otherwise, and not what nobody may say of it."""
        if resource.generation:
            obj["metadata"]["generation"] = 1
        if resource.has_status and resource.structure is not None:
            obj.pop("status", None)
        elif resource.has_status and not resource.keeps_status:
            obj["status"] = {}
        if resource.structure is None:
            apply_defaults(resource.kind.plural, obj, context.now)
            strip_disabled(resource.kind.plural, obj, None, context.gates)

    def _free_key(self, resource: Resource, namespace: str, metadata: dict[str, Any], table: Table) -> str:
        base = metadata.get("generateName")
        if metadata.get("name") or not base:
            key = key_of(resource, namespace, metadata.get("name") or "")
            if key in table.entries:
                raise already_exists(resource.kind, metadata["name"])
            return key
        for _ in range(NAMES_TRIED):
            metadata["name"] = meta.generated_name(base, self.randomness)
            key = key_of(resource, namespace, metadata["name"])
            if key not in table.entries:
                return key
        raise already_exists(resource.kind, metadata["name"])

    def _namespace_open(self, resource: Resource, namespace: str, obj: dict[str, Any]) -> None:
        if not resource.kind.namespaced:
            return
        found = self._namespaces.entries.get(namespace)
        if found is None:
            raise not_found(NAMESPACE, namespace)
        if found.object["metadata"].get("deletionTimestamp") or found.object.get("status", {}).get("phase") == "Terminating":
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(resource.kind, name, message, [cause])

    # ------------------------------------------------------------------------------------------------------------ update

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Change,
        options: WriteOptions,
        *,
        subresource: str = "",
        unconditional: bool = True,
        seen: Seen | None = None,
    ) -> Entry:
        """Replace an object by what ``change`` makes of it. ``change`` does not change its argument, and may raise."""
        old = self.get(resource, namespace, name)
        base = old.copy()  # what the new object keeps of the old one is its own
        given = change(base)
        obj = self.normalised(resource, given, options, base)
        _place(resource, obj, namespace, name)
        self._preconditions(resource, obj["metadata"], old.object["metadata"], unconditional)
        context = self.context(options, subresource)
        changed = list(meta.immutable_problems(obj["metadata"], base["metadata"], uid=not unconditional))
        self._keep(resource, obj, base, subresource)
        mutates = seen is None and subresource not in ASKED_BEFORE and self.admission.mutates(resource, options)
        if mutates:
            if resource.structure is None:
                apply_defaults(resource.kind.plural, obj, context.now)
            self._own(resource, obj, old.object, given, context, options)
            obj = self.admission.mutate(UPDATE, resource, namespace, name, obj, old.object, options, subresource=subresource)
            if obj["metadata"].get("name") != name:
                renamed = FieldError("metadata.name", "Invalid", obj["metadata"].get("name"), "field is immutable")
                raise invalid(resource.kind, obj["metadata"].get("name") or "", [renamed])
            _place(resource, obj, namespace)
            self._preconditions(resource, obj["metadata"], old.object["metadata"], False)
            changed += meta.immutable_problems(obj["metadata"], base["metadata"], uid=True)
            self._keep(resource, obj, base, subresource)
        self._prepare_changed(resource, obj, old.object, context)
        self._check(resource, obj, old.object, context, changed)
        if subresource not in ASKED_BEFORE and self.admission.asks(resource, options):
            now, before = (obj, old.object) if seen is None else (seen.of(obj), seen.of(old.object))
            kind = seen.kind if seen is not None else None
            self.admission.validate(UPDATE, resource, namespace, name, now, before, options, subresource=subresource, kind=kind)
        charged = subresource in CHARGED and self._admit_change(resource, namespace, obj, old.object, context)
        if not mutates:
            self._own(resource, obj, old.object, given, context, options)
        stored = self._replace(resource, namespace, obj, old, options)
        if charged and not options.dry_run:
            self._quotas.settle(namespace, context.now)
        return stored

    def _own(
        self,
        resource: Resource,
        obj: dict[str, Any],
        old: dict[str, Any],
        given: dict[str, Any],
        context: Context,
        options: WriteOptions,
    ) -> None:
        """Note who set which field. What policies change nobody owns."""
        if options.applied:
            _keep_managed(obj, given)
            return
        self.ownership.record(
            resource,
            obj,
            old,
            given.get("metadata"),
            manager=options.manager,
            now=context.now,
            subresource=context.subresource,
        )

    def _admit_change(
        self, resource: Resource, namespace: str, obj: dict[str, Any], old: dict[str, Any], context: Context
    ) -> bool:
        limits.check(resource, obj, old, context)
        return self._quotas.admit(resource, namespace, obj, old, context.now)

    def _preconditions(self, resource: Resource, new: dict[str, Any], old: dict[str, Any], unconditional: bool) -> None:
        name = old["name"]
        if unconditional and new.get("uid") and new["uid"] != old["uid"]:
            why = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old['uid']}"
            raise conflict(resource.kind, name, why)
        version = new.get("resourceVersion")
        if not version and unconditional and not resource.unconditional_update:
            problem = FieldError("metadata.resourceVersion", "Invalid", 0, "must be specified for an update")
            raise invalid(resource.kind, name, [problem])
        if version and version not in ("0", old["resourceVersion"]):
            raise modified(resource.kind, name)

    def _keep(self, resource: Resource, obj: dict[str, Any], base: dict[str, Any], subresource: str) -> None:
        """What a write of this sort does not change."""
        if subresource == "status":
            _only_status(resource, obj, base)
        elif subresource == "":
            _keep_status(resource, obj, base)
        meta.keep_server_fields(obj["metadata"], base["metadata"])

    def _prepare_changed(self, resource: Resource, obj: dict[str, Any], old: dict[str, Any], context: Context) -> None:
        of_status = context.subresource == "status"
        if resource.structure is None and of_status:
            apply_status_defaults(resource.kind.plural, obj, context.now)
        elif resource.structure is None:
            apply_defaults(resource.kind.plural, obj, context.now)
        for hook in resource.prepare_status if of_status else resource.prepare:
            hook(obj, old, context)
        whole = resource.structure is not None and not resource.has_status
        if resource.generation and context.subresource not in ("status", "binding") and _differ_in_spec(obj, old, whole):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if resource.structure is None:
            strip_disabled(resource.kind.plural, obj, old, context.gates)

    def _replace(self, resource: Resource, namespace: str, obj: dict[str, Any], old: Entry, options: WriteOptions) -> Entry:
        obj["metadata"]["resourceVersion"] = old.object["metadata"]["resourceVersion"]
        if obj == old.object:
            return old
        if options.dry_run:
            return not_stored(obj)
        table, key = self.table(resource), key_of(resource, namespace, obj["metadata"]["name"])
        if _is_finished(resource, obj):
            gone = self._stored(resource, self.store.delete(table, key, obj), removed=True)
            self._quotas.settle(namespace, self.clock())
            return gone
        return self._stored(resource, self.store.put(table, key, obj))

    def _check(
        self,
        resource: Resource,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        context: Context,
        found: Iterable[FieldError] = (),
    ) -> None:
        """``found`` is what is wrong already."""
        metadata = obj["metadata"]
        problems: list[Any] = list(found)
        if old is None or metadata_differs(metadata, old["metadata"]):
            problems += meta.problems(metadata, resource.names, any_finalizer=resource.any_finalizer)
        if old is not None:
            problems += meta.update_problems(metadata, old["metadata"])
        if resource.structure is None:
            problems += self._kind_problems(resource.kind.plural, obj, old, context)
        for check in resource.check:
            problems += check(obj, old, context)
        if problems:
            raise invalid(resource.kind, metadata.get("name") or "", problems)

    def _kind_problems(self, plural: str, obj: dict[str, Any], old: dict[str, Any] | None, context: Context) -> list[FieldError]:
        namespace = self._namespaces.entries.get(obj["metadata"].get("namespace", ""))
        labels = (namespace.object["metadata"].get("labels") or {}) if namespace is not None else None
        if old is None:
            return validate_create(plural, obj, context.gates, namespace_labels=labels)
        return validate_update(plural, obj, old, context.gates, context.subresource, namespace_labels=labels)

    # ------------------------------------------------------------------------------------------------------------ delete

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        given: DeleteOptions,
        options: WriteOptions,
        *,
        collection: bool = False,
    ) -> Removal:
        """``collection``: as one of many, which are asked for without names."""
        old = self.get(resource, namespace, name)
        if resource.kind.resource == "namespaces" and name in PROTECTED_NAMESPACES:
            raise forbidden(resource.kind, name, "this namespace may not be deleted")
        removal = self._deletion.decide(resource, old, given)
        if self.admission.asks(resource, options):
            asked = "" if collection else name
            self.admission.validate(DELETE, resource, namespace, asked, None, old.object, options, body=given)
        if options.dry_run:
            return removal
        if resource.leaving is not None:
            old = resource.leaving(old)
            removal = self._deletion.decide(resource, old, msgspec.structs.replace(given, preconditions=None))
        table, key = self.table(resource), key_of(resource, namespace, name)
        if removal.now:
            gone = self._stored(resource, self.store.delete(table, key, removal.entry.object), removed=True)
            self._quotas.settle(namespace, self.clock())
            return msgspec.structs.replace(removal, entry=gone)
        if removal.entry is not old:
            entry = self._stored(resource, self.store.put(table, key, removal.entry.object))
            return msgspec.structs.replace(removal, entry=entry)
        return removal

    def delete_all(self, resource: Resource, chosen: Iterable[Entry], given: DeleteOptions, options: WriteOptions) -> None:
        """Delete each; what has gone meanwhile is no problem."""
        for entry in chosen:
            metadata = entry.look()["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            if self.find(resource, namespace, name) is not None:
                self.delete(resource, namespace, name, given, options, collection=True)

    # ------------------------------------------------------------------------------------------------------------- input

    def normalised(
        self, resource: Resource, given: Any, options: WriteOptions, base: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The object as its kind's schema stores it; it may be changed. What it has from ``base`` is not looked at again."""
        kind = resource.kind
        if not isinstance(given, dict):
            raise bad_request(f"the body must be a {kind.kind} object, not {type(given).__name__}")
        _right_kind(kind, given)
        obj, problems = self.schemas.normalise(kind, given, base if resource.from_stored is None else None)
        unknown = [p.message for p in problems if p.category == "unknown field"]
        for problem in problems:
            if problem.category != "unknown field" or (resource.exact and problem.path.startswith(f"{resource.exact}.")):
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problem.message}'
                )
        unknown += options.repeated
        if unknown and options.validation == "Strict":
            shown = ", ".join(unknown[:100])
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {shown}'
            )
        if options.validation == "Warn":
            options.warnings += unknown[:100]
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}  # first, so that lists can leave them out
        metadata = obj.get("metadata")
        metadata = obj["metadata"] = dict(metadata) if isinstance(metadata, dict) else {}
        meta.tidy(metadata)
        return resource.to_stored(obj) if resource.to_stored is not None else obj


NAMESPACE: Final = Kind("", "v1", "namespaces", "Namespace", False)


# What a new object gets when everybody has seen it.
OF_THE_SERVER: Final = ("uid", "creationTimestamp", "generation")


def key_of(resource: Resource, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if resource.kind.namespaced else name


def _right_kind(kind: Kind, given: dict[str, Any]) -> None:
    found = given.get("apiVersion") or kind.api_version, given.get("kind") or kind.kind
    if found != (kind.api_version, kind.kind):
        raise bad_request(
            f"the API version in the data ({found[0]}) does not match the expected API version ({kind.api_version})"
            if found[1] == kind.kind
            else f"{found[0]}, Kind={found[1]} cannot be handled as a {kind.kind}: the kind does not match the URL"
        )


def _place(resource: Resource, obj: dict[str, Any], namespace: str, name: str = "") -> None:
    """Name and namespace of the object must be those of the URL; absent ones are taken from it."""
    metadata = obj["metadata"]
    if name:
        if not metadata.get("name"):
            raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
        if metadata["name"] != name:
            raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if not resource.kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.get("namespace") and metadata["namespace"] != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata["namespace"] = namespace


def _only_status(resource: Resource, obj: dict[str, Any], old: dict[str, Any]) -> None:
    """A write of the status changes no more than that, and the metadata that its kind does not keep apart."""
    metadata, status, before = obj["metadata"], obj.get("status"), old["metadata"]
    obj.clear()
    obj.update(old)
    obj["metadata"] = metadata
    obj.pop("status", None)
    for field in ALL_METADATA if resource.structure is not None else resource.status_metadata:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    if status is not None:
        obj["status"] = status


def _keep_status(resource: Resource, obj: dict[str, Any], old: dict[str, Any]) -> None:
    if resource.has_status:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = old["status"]


def _differ_in_spec(obj: dict[str, Any], old: dict[str, Any], whole: bool) -> bool:
    """Whether more than metadata changed; the status counts only where there is no other way to write it."""
    fields = (obj.keys() | old.keys()) - {"metadata", "apiVersion", "kind"} - (set() if whole else {"status"})
    return any(obj.get(field) != old.get(field) for field in fields)


def metadata_differs(new: dict[str, Any], old: dict[str, Any]) -> bool:
    return any(new.get(field) != old.get(field) for field in ("labels", "annotations", "finalizers", "ownerReferences", "name"))


def _is_finished(resource: Resource, obj: dict[str, Any]) -> bool:
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.kind.resource == "namespaces" and obj.get("spec", {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _keep_managed(obj: dict[str, Any], given: dict[str, Any]) -> None:
    obj["metadata"]["managedFields"] = given["metadata"].get("managedFields") or []
    meta.tidy(obj["metadata"])
