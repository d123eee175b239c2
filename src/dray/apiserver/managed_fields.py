"""Who manages which field: managedFields kept for updates, and server-side apply.

An entry belongs to a manager, an operation (Apply or Update), an API version and a subresource. An update gives the manager
the fields that it set or changed, and takes them from the others. An apply gives the manager just the fields of its
configuration; those that it had before, does not send any more, and nobody else manages are removed. A field to which the
configuration gives another value than it has, and that somebody else manages, is a conflict; with force it is taken over.
An applier is the same one in whichever version of the API it writes. An object that nobody manages counts as written by
``before-first-apply``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dray.api.times import format_time
from dray.apiserver.field_sets import (
    SELF,
    Fields,
    FieldSet,
    common,
    from_wire,
    in_order,
    minus,
    paths,
    union,
)
from dray.apiserver.merging import Merge, Removal
from dray.apiserver.patch_errors import PatchError
from dray.apiserver.schema import UNKNOWN_FIELD, KindLike, Schemas, Struct

Object = dict[str, Any]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_MANAGER: Final = 128
BEFORE_FIRST: Final = "before-first-apply"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_SERVER_FIELDS: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
)
_OF_KIND: Final = frozenset({"f:apiVersion", "f:kind", "f:metadata"})
_SERVER_KEYS: Final = frozenset({SELF, *(f"f:{name}" for name in _SERVER_FIELDS)})


class Owner(NamedTuple):
    """Whose entry it is."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


class Stored(NamedTuple):
    """The kind that an object is stored as, which may not be the one that the client used."""

    api_version: str
    kind: str


class _Claim(NamedTuple):
    fields: FieldSet
    time: str


class ManagedFields:
    """Keeps managedFields of objects of all kinds."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._fields = Fields(schemas)
        self._empty: dict[tuple[str, str], Object] = {}

    def forget(self) -> None:
        """Declarations changed: nothing that was prepared of them holds any more."""
        self._fields.forget()
        self._empty.clear()

    def updated(
        self,
        kind: KindLike,
        new: Object,
        old: Object | None,
        *,
        manager: str,
        now: float,
        subresource: str,
        has_status: bool,
    ) -> list[Object]:
        """The entries after a create (``old`` is None) or an update. ``new`` carries the entries to start from."""
        struct = self._schemas.kind(kind)
        held = (new.get("metadata") or {}).get("managedFields")
        entries = _read(held, stored=old is not None and held == old["metadata"].get("managedFields"))
        if struct is None:
            return _write(entries)
        changed, removed = self._fields.changes(struct, old if old is not None else self._nothing(kind), new)
        changed = _owned(changed, _foreign(subresource, has_status=has_status))
        owner = Owner(manager, UPDATE, kind.api_version, subresource)
        return _write(_taken(entries, owner, changed, _owned(removed), now))

    def apply(
        self,
        kind: KindLike,
        current: Object | None,
        patch: Object,
        *,
        manager: str,
        now: float,
        subresource: str = "",
        has_status: bool,
        force: bool = False,
        to_stored: Callable[[Object], Object] | None = None,
    ) -> Object:
        """The object after applying a configuration, with its managedFields. ``current`` is None where there is none yet.

        A configuration in another version than the stored one is converted first; fields are owned in the stored version.
        """
        if self._schemas.kind(kind) is None:
            raise PatchError(415, "UnsupportedMediaType", f"{kind.kind} does not support server-side apply")
        _check_patch(kind, patch, manager)
        wanted = self._configuration(kind, patch)
        if to_stored is not None:
            wanted = to_stored(wanted)
            kind = Stored(wanted["apiVersion"], wanted["kind"])
        struct = self._schemas.kind(kind)
        assert struct is not None, f"{kind.api_version} {kind.kind} is stored and not declared"
        base = current if current is not None else self._nothing(kind)
        entries = self._entries(kind, struct, current)
        owner = self._applier(entries, Owner(manager, APPLY, kind.api_version, subresource))
        applied = self._fields.of_object(struct, wanted)
        applied = _owned(applied, _foreign(subresource, has_status=has_status))
        had = entries[owner].fields if owner in entries else {}
        merged = Merge(self._schemas).structs(struct, base, wanted)
        if had:
            managed = applied
            for other, claim in entries.items():
                managed = union(managed, claim.fields) if other != owner else managed
            merged = self._pruned(struct, merged, had, managed)
        changed, removed = self._fields.changes(struct, base, merged)
        if not force:
            self._refuse_conflicts(struct, base, entries, owner, changed)
        written = _write(_applied(entries, owner, kind.api_version, applied, changed, removed, now))
        return merged | {"metadata": {**merged.get("metadata", {}), "managedFields": written}}

    def _pruned(self, struct: Struct, merged: Object, had: FieldSet, managed: FieldSet) -> Object:
        """Without what this applier had, and neither it nor anybody else manages now."""
        removal = Removal(self._schemas)
        last = removal.named(struct, had)
        whole = removal.named(struct, self._fields.of_object(struct, merged))
        left = removal.structs(struct, merged, last)
        kept = union(removal.named(struct, self._fields.of_object(struct, left)), removal.named(struct, managed))
        left = removal.structs(struct, merged, minus(whole, kept))
        gone = minus(whole, removal.named(struct, self._fields.of_object(struct, left)))
        return removal.structs(struct, merged, common(gone, last))

    def _entries(self, kind: KindLike, struct: Struct, current: Object | None) -> dict[Owner, _Claim]:
        entries = _read(((current or {}).get("metadata") or {}).get("managedFields"))
        if entries or current is None:
            return entries
        everything = _owned(self._fields.changes(struct, self._nothing(kind), current)[0])
        return {Owner(BEFORE_FIRST, UPDATE, kind.api_version): _Claim(in_order(everything), "")}

    def _applier(self, entries: dict[Owner, _Claim], owner: Owner) -> Owner:
        """The entry of this applier, in whichever version it was written."""
        same = (found for found in entries if found._replace(api_version=owner.api_version) == owner)
        return next(same, owner)

    def _refuse_conflicts(
        self, struct: Struct, base: Object, entries: dict[Owner, _Claim], owner: Owner, changed: FieldSet
    ) -> None:
        conflicts = {
            other: found for other, claim in entries.items() if other != owner and (found := common(claim.fields, changed))
        }
        if not conflicts:
            return
        if owner.manager == "kubectl":
            own = self._last_applied(struct, base)
            if not any(minus(found, own) for found in conflicts.values()):
                return
        raise _conflict({other: (entries[other], list(paths(found))) for other, found in conflicts.items()})

    def _last_applied(self, struct: Struct, base: Object) -> FieldSet:
        """What kubectl applied on the client's side before, from its note: it may go on with that on the server's side."""
        note = ((base.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
        try:
            last = json.loads(note or "{}")
        except ValueError:
            last = {}
        return self._fields.of_object(struct, last) if isinstance(last, dict) else {}

    def _configuration(self, kind: KindLike, patch: Object) -> Object:
        """The configuration in canonical form. What the kind does not declare cannot be managed, so it is refused."""
        wanted, problems = self._schemas.partial(kind, patch)
        if problems:
            metadata = patch.get("metadata") or {}
            subject = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {kind.api_version}, Kind={kind.kind}"
            details = ", ".join(
                f".{problem.path}: {'field not declared in schema' if problem.category == UNKNOWN_FIELD else problem.message}"
                for problem in problems[:20]
            )
            raise PatchError(400, "BadRequest", f"failed to create typed patch object ({subject}): {details}")
        return wanted

    def _nothing(self, kind: KindLike) -> Object:
        """An object of the kind with nothing set: what a new one is compared with."""
        key = (kind.api_version, kind.kind)
        found = self._empty.get(key)
        if found is None:
            found = self._empty[key] = self._schemas.normalise(kind, {})[0]
        return found


# entries


def _read(entries: Any, *, stored: bool = False) -> dict[Owner, _Claim]:
    """The entries by owner. Those that are ``stored`` were read before, so what they hold are sets."""
    made: dict[Owner, _Claim] = {}
    for entry in entries or ():
        if isinstance(entry, dict) and entry.get("operation") in (APPLY, UPDATE):
            owner = Owner(
                entry.get("manager") or "", entry["operation"], entry.get("apiVersion") or "", entry.get("subresource") or ""
            )
            fields = entry.get("fieldsV1") or {} if stored else from_wire(entry.get("fieldsV1"))
            made[owner] = _Claim(fields, entry.get("time") or "")
    return made


def _write(entries: dict[Owner, _Claim]) -> list[Object]:
    """In a fixed order: applied first, then by time."""
    ordered = sorted(entries.items(), key=lambda item: (item[0].operation, item[1].time, item[0].manager, item[0].subresource))
    return [_entry(owner, claim) for owner, claim in ordered]


def _entry(owner: Owner, claim: _Claim) -> Object:
    made: Object = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api_version}
    if claim.time:
        made["time"] = claim.time
    made |= {"fieldsType": "FieldsV1", "fieldsV1": claim.fields}
    return made | {"subresource": owner.subresource} if owner.subresource else made


def _taken(entries: dict[Owner, _Claim], owner: Owner, changed: FieldSet, removed: FieldSet, now: float) -> dict[Owner, _Claim]:
    if not changed and not removed:
        return entries
    made: dict[Owner, _Claim] = {}
    for other, claim in entries.items():
        left = minus(claim.fields, removed) if other == owner else minus(minus(claim.fields, removed), changed)
        if left:
            made[other] = _Claim(left, claim.time)
    if changed:
        mine = made.get(owner, _Claim({}, ""))
        made[owner] = _Claim(in_order(union(mine.fields, changed)), format_time(now))
    return made


def _applied(
    entries: dict[Owner, _Claim],
    owner: Owner,
    api_version: str,
    applied: FieldSet,
    changed: FieldSet,
    removed: FieldSet,
    now: float,
) -> dict[Owner, _Claim]:
    before = entries.get(owner)
    rest = {other: claim for other, claim in entries.items() if other != owner}
    made = {
        other: _Claim(left, claim.time) for other, claim in rest.items() if (left := minus(minus(claim.fields, removed), changed))
    }
    if not applied:
        return made
    same = before is not None and before.fields == applied and not changed and not removed and owner.api_version == api_version
    mine = before if same and before is not None else _Claim(in_order(applied), format_time(now))
    made[owner._replace(api_version=api_version)] = mine
    return made


def _conflict(conflicts: dict[Owner, tuple[_Claim, list[str]]]) -> PatchError:
    count = sum(len(found) for _, found in conflicts.values())
    causes = []
    lines = []
    for owner, (_, found) in sorted(conflicts.items()):
        who = _who(owner)
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for path in found]
        lines += [f"conflicts with {who}:", *(f"- {path}" for path in found)]
    if count == 1:
        shown = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        shown = f"Apply failed with {count} conflicts: " + "\n".join(lines)
    return PatchError(409, "Conflict", shown, causes)


def _who(owner: Owner) -> str:
    shown = json.dumps(owner.manager, ensure_ascii=False)
    if owner.subresource:
        shown += f" with subresource {json.dumps(owner.subresource)}"
    return f"{shown} using {owner.api_version}" if owner.operation == UPDATE else shown


def _owned(fields: FieldSet, foreign: str = "") -> FieldSet:
    """Without what belongs to the server, and without the part that this sort of write does not own."""
    if not fields:
        return fields
    made = {key: child for key, child in fields.items() if key not in _OF_KIND and key != foreign}
    found = fields.get("f:metadata")
    if found:
        metadata = {key: child for key, child in found.items() if key not in _SERVER_KEYS}
        if metadata:
            made["f:metadata"] = metadata
    return made


def _foreign(subresource: str, *, has_status: bool) -> str:
    """A write of the status owns no spec, and a write of the object no status, where these are written apart."""
    if subresource == "status":
        return "f:spec"
    return "f:status" if has_status and not subresource else ""


# configurations


def _check_patch(kind: KindLike, patch: Any, manager: str) -> None:
    if not isinstance(patch, dict) or not isinstance(patch.get("metadata") or {}, dict):
        raise PatchError(400, "BadRequest", "the body of an apply patch and its metadata must be objects")
    if not manager:
        message = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        raise PatchError(422, "Invalid", message)
    if len(manager) > MAX_MANAGER or not manager.isprintable():
        raise PatchError(422, "Invalid", f"fieldManager must be at most {MAX_MANAGER} printable characters")
    if (patch.get("metadata") or {}).get("managedFields") is not None:
        raise PatchError(400, "BadRequest", "metadata.managedFields must be nil")
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if patch.get(field) != wanted:
            message = f"the {field} of an apply patch must be {wanted!r}, not {patch.get(field)!r}"
            raise PatchError(400, "BadRequest", message)
