"""Keeps what is served in step with the definitions that are stored.

A definition is accepted or not in the write that brings it: when that is answered, its kind is served, or its conditions say why
not. A definition that is deleted takes its objects along and goes when the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS
from dray.api.times import format_time
from dray.api.validation.errors import FieldError
from dray.apiserver.custom import shipped
from dray.apiserver.custom.serving import resources, shapes, storage_version, unreadable
from dray.apiserver.custom.shape import Shape
from dray.apiserver.deletion import DeleteOptions
from dray.apiserver.errors import bad_request
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.registry import Context, Resource
from dray.apiserver.schema import UNKNOWN_FIELD, Schemas
from dray.apiserver.store import Entry, Table

Object = dict[str, Any]

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_ABOUT: Final = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


class Definitions:
    """The custom kinds of one server. ``declared`` is its registry's entry for definitions."""

    def __init__(self, operations: Operations) -> None:
        self._operations, self._registry, self._schemas = operations, operations.registry, operations.schemas
        declared = msgspec.structs.replace(
            self._registry.of(CUSTOM_RESOURCE_DEFINITIONS),
            prepare=(_complete(self._schemas), self._judge),
            check=(self._check,),
            leaving=self._leave,
            after=(self._stored,),
        )
        self.declared: Resource = declared
        self._registry.replace(declared)
        self._served: dict[str, list[Resource]] = {}
        self._shapes: dict[str, list[Shape]] = {}
        self._generations: dict[str, int] = {}
        self._table = operations.table(declared)
        self._trusted = False

    def load(self) -> None:
        """Serve what is stored, and nothing else: at the start, and when changes of definitions were lost."""
        for kept in (self._served, self._shapes, self._generations):
            kept.clear()
        for name, entry in self._table.scan():
            self._put(entry.object)
            self._generations[name] = entry.object["metadata"].get("generation", 1)
        self._publish()

    def install(self) -> None:
        """What every cluster has from the start, unless it is there already. It is known to be right, so nothing is loaded to
        check it."""
        self._trusted = True
        options = WriteOptions(manager="dray", validation="Ignore")
        for name in shipped.NAMES:
            raw, tag = shipped.source(name)
            entry = self._table.entries.get(name)
            if entry is None:
                self._operations.create(self.declared, "", shipped.definition(raw, tag), options)
            elif (before := _source(entry.object)) and before != tag:
                newer = shipped.definition(raw, tag)
                self._operations.update(self.declared, "", name, lambda old, newer=newer: _renewed(old, newer), options)  # type: ignore[misc]

        self._trusted = False

    # -------------------------------------------------------------------------------------------------- before it is stored

    def _check(self, obj: Object, old: Object | None, context: Context) -> Iterator[FieldError]:
        if context.subresource == "" and not self._trusted:
            from dray.apiserver.custom import definition

            yield from definition.problems(obj, old)

    def _judge(self, obj: Object, old: Object | None, context: Context) -> None:
        """Whether its names are free; a kind that is established stays so."""
        spec, status = obj["spec"], dict(obj.get("status") or {})
        accepted = dict(status.get("acceptedNames") or {})
        reason, message = self._conflict(obj["metadata"].get("name") or "", spec, accepted)
        status["conditions"] = _conditions(status.get("conditions") or (), reason, message, format_time(context.now))
        status["acceptedNames"] = accepted
        stored = storage_version(obj)
        versions = status.get("storedVersions") or []
        status["storedVersions"] = versions if stored in versions or not stored else [*versions, stored]
        obj["status"] = status
        if (spec.get("conversion") or {}).get("strategy") == "Webhook":
            context.warnings.append("spec.conversion.strategy: webhooks are not called; objects are converted as with None")
        context.warnings.extend(unreadable(obj))

    def _conflict(self, name: str, spec: Object, accepted: Object) -> tuple[str, str]:
        """Takes over the names that are free into ``accepted``, and says what is not."""
        taken, kinds = self._taken(name, spec.get("group") or "")
        names = spec.get("names") or {}
        reason = message = ""
        for field, conflict in _ABOUT:
            wanted = names.get(field) or ([] if field == "shortNames" else "")
            others = kinds if field in ("kind", "listKind") else taken
            used = [each for each in (wanted if isinstance(wanted, list) else [wanted]) if each in others]
            if used:
                reason, message = conflict, ", ".join(f'"{each}" is already in use' for each in used)
            elif wanted:
                accepted[field] = wanted
            else:
                accepted.pop(field, None)
        if names.get("categories"):
            accepted["categories"] = names["categories"]
        else:
            accepted.pop("categories", None)
        accepted.setdefault("plural", "")
        accepted.setdefault("kind", "")
        return reason, message

    def _taken(self, name: str, group: str) -> tuple[set[str], set[str]]:
        names, kinds = set[str](), set[str]()
        for _, entry in self._table.scan():
            other = entry.object
            if other["metadata"]["name"] == name or other["spec"].get("group") != group:
                continue
            has = (other.get("status") or {}).get("acceptedNames") or {}
            names |= {has.get("plural") or "", has.get("singular") or "", *(has.get("shortNames") or ())}
            kinds |= {has.get("kind") or "", has.get("listKind") or ""}
        return names - {""}, kinds - {""}

    # --------------------------------------------------------------------------------------------------- when it is stored

    def _stored(self, entry: Entry, removed: bool) -> None:
        obj = entry.object
        name = obj["metadata"]["name"]
        if removed:
            self._forget(name)
        else:
            self._put(obj)
        self._publish()
        if removed:
            self._freed(obj["spec"].get("group") or "")
        elif obj["metadata"].get("deletionTimestamp"):
            self._empty(obj)
        if self._changed(obj, removed):
            # Who watches sees what was served before: let them begin again.
            self._operations.store.end_watches(self._objects(obj))

    def _changed(self, obj: Object, removed: bool) -> bool:
        """Whether what is served is another than before. A definition that is being deleted serves until it is gone."""
        name, metadata = obj["metadata"]["name"], obj["metadata"]
        if removed:
            return self._generations.pop(name, None) is not None
        if metadata.get("deletionTimestamp"):
            return False
        before, generation = self._generations.get(name), metadata.get("generation", 1)
        self._generations[name] = generation
        return before not in (None, generation)

    def _objects(self, obj: Object) -> Table:
        return self._operations.store.table(f"{obj['spec']['names']['plural']}.{obj['spec']['group']}")

    def _put(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        conditions = {c["type"]: c["status"] for c in (obj.get("status") or {}).get("conditions") or ()}
        if conditions.get("Established") != "True":
            self._forget(name)
            return
        versions = shapes(obj, self._schemas)
        self._shapes[name] = [shape for _, shape in versions]
        self._served[name] = [msgspec.structs.replace(resource, after=(self._instance,)) for resource in resources(obj, versions)]

    def _forget(self, name: str) -> None:
        self._served.pop(name, None)
        self._shapes.pop(name, None)

    def _publish(self) -> None:
        self._registry.extend(resource for each in self._served.values() for resource in each)
        shapes = (shape for each in self._shapes.values() for shape in each)
        self._schemas.define({(shape.kind.api_version, shape.kind.kind): shape for shape in shapes})
        self._operations.ownership.fields.forget()

    def _freed(self, group: str) -> None:
        """Names came free: whoever waits for them is judged again."""
        for _, entry in self._table.scan():
            waiting = entry.object
            conditions = {c["type"]: c["status"] for c in (waiting.get("status") or {}).get("conditions") or ()}
            if waiting["spec"].get("group") == group and conditions.get("NamesAccepted") == "False":
                self._touch(waiting["metadata"]["name"], {})

    # ----------------------------------------------------------------------------------------------------- when it is deleted

    def _leave(self, entry: Entry) -> Entry:
        """A definition that is about to be deleted waits for its objects."""
        metadata = entry.object["metadata"]
        if CLEANUP in (metadata.get("finalizers") or ()):
            return entry
        return self._touch(
            metadata["name"], {"metadata": metadata | {"finalizers": [*(metadata.get("finalizers") or ()), CLEANUP]}}
        )

    def _empty(self, obj: Object) -> None:
        """Delete the objects; those that have finalizers keep the definition until they are gone."""
        name = obj["metadata"]["name"]
        served = self._served.get(name)
        if served:
            resource = served[0]
            for _, entry in self._operations.table(resource).scan():
                metadata = entry.object["metadata"]
                if not metadata.get("deletionTimestamp"):
                    place = metadata.get("namespace", "")
                    self._operations.delete(resource, place, metadata["name"], DeleteOptions(), WriteOptions())
        self._finish(name)

    def _instance(self, entry: Entry, removed: bool) -> None:
        if removed:
            group = entry.object["apiVersion"].partition("/")[0]
            kind = entry.object["kind"]
            for name, served in self._served.items():
                if served and (served[0].kind.group, served[0].kind.kind) == (group, kind):
                    self._finish(name)
                    return

    def _finish(self, name: str) -> None:
        """Let a definition go whose objects are gone."""
        entry = self._table.entries.get(name)
        if entry is None or not entry.object["metadata"].get("deletionTimestamp"):
            return
        metadata = entry.object["metadata"]
        if not self._objects(entry.object).entries and CLEANUP in (metadata.get("finalizers") or ()):
            kept = [each for each in metadata["finalizers"] if each != CLEANUP]
            self._touch(name, {"metadata": metadata | {"finalizers": kept}})

    def _touch(self, name: str, change: Object) -> Entry:
        return self._operations.update(self.declared, "", name, lambda old: old | change, WriteOptions(manager="dray"))


def _source(definition: Object) -> str:
    return str((definition["metadata"].get("annotations") or {}).get(shipped.SOURCE) or "")


def _renewed(old: Object, newer: Object) -> Object:
    annotations = (old["metadata"].get("annotations") or {}) | newer["metadata"]["annotations"]
    return old | {"metadata": old["metadata"] | {"annotations": annotations}, "spec": newer["spec"]}


def _conditions(before: Any, reason: str, message: str, now: str) -> list[Object]:
    """The conditions after names were judged; ``reason`` is empty where they are free."""
    made = {each["type"]: each for each in before}
    served = not reason or made.get("Established", {}).get("status") == "True"
    ready = ("InitialNamesAccepted", "the initial names have been accepted")
    for condition in (
        _condition("NamesAccepted", not reason, reason or "NoConflicts", message or "no conflicts found", now),
        _condition("Established", served, *(ready if served else ("NotAccepted", "not all names are accepted")), now),
    ):
        old = made.get(condition["type"]) or {}
        if old.get("status") == condition["status"]:
            condition["lastTransitionTime"] = old.get("lastTransitionTime") or now
        made[condition["type"]] = {**old, **condition}
    return list(made.values())


def _condition(type_: str, holds: bool, reason: str, message: str, now: str) -> Object:
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _complete(schemas: Schemas) -> Any:
    """Defaults, and schemas below ``items`` and ``additionalProperties``, which are read when it is known what they are."""

    def hook(obj: Object, old: Object | None, context: Context) -> None:
        spec = obj["spec"]
        names = spec.get("names") or {}
        kind = names.get("kind") or ""
        if kind:
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {}).setdefault("strategy", "None")
        for version in spec.get("versions") or ():
            whole = version.get("schema") or {}
            if "openAPIV3Schema" in whole:
                whole["openAPIV3Schema"] = _completed(whole["openAPIV3Schema"], schemas)

    return hook


def _completed(schema: Object, schemas: Schemas) -> Object:
    made = dict(schema)
    for name in ("properties", "definitions", "patternProperties"):
        if name in made:
            made[name] = {key: _completed(each, schemas) for key, each in made[name].items()}
    for name in ("allOf", "anyOf", "oneOf"):
        if name in made:
            made[name] = [_completed(each, schemas) for each in made[name]]
    if "not" in made:
        made["not"] = _completed(made["not"], schemas)
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            read, problems = schemas.part("apiextensions.JSONSchemaProps", made[name])
            wrong = next((problem for problem in problems if problem.category != UNKNOWN_FIELD), None)
            if wrong is not None:
                raise bad_request(f"CustomResourceDefinition: {name}: {wrong.message}")
            made[name] = _completed(read, schemas)
    return made
