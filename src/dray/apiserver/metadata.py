"""Object metadata: names, what the server sets, and what every kind's metadata must satisfy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final

from dray.api.names import GENERATED_LETTERS, label, label1035, label_value, qualified_name, subdomain
from dray.api.validation.access import path_segment
from dray.api.validation.errors import FieldError

_GENERATED_BASE: Final = 58
_RANDOM_BITS: Final = ~(0xF000 << 64 | 0xC000 << 48)
_VERSION_4: Final = 0x4000 << 64 | 0x8000 << 48
_ANNOTATIONS_BYTES: Final = 256 * 1024
_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_RULES: Final = {"label": label, "label1035": label1035, "subdomain": subdomain}


def new_uid(randomness: random.Random) -> str:
    """Version 4: random but for the bits that say so."""
    digits = f"{randomness.getrandbits(128) & _RANDOM_BITS | _VERSION_4:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def generated_name(base: str, randomness: random.Random) -> str:
    return base[:_GENERATED_BASE] + "".join(randomness.choices(GENERATED_LETTERS, k=5))


def is_address(text: str) -> bool:
    try:
        return str(ip_address(text)) == text
    except ValueError:
        return False


def name_problem(name: str, rule: str) -> str:
    """The first thing that is wrong with a name."""
    return next(iter(name_problems(name, rule)), "")


def name_problems(name: str, rule: str) -> list[str]:
    """What is wrong with a name under the rule of its kind: subdomain, label, label1035, address, segment or any."""
    if rule == "address":
        return [] if is_address(name) else ["must be a valid IP address in canonical form, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if rule in ("segment", "any"):
        return [problem] if rule == "segment" and (problem := path_segment(name)) else []
    return _RULES[rule](name)


def label_problems(labels: Any, path: str) -> Iterator[FieldError]:
    for key, value in (labels or {}).items():
        for problem in qualified_name(key):
            yield FieldError(path, "Invalid", key, problem)
        for problem in label_value(value):
            yield FieldError(path, "Invalid", value, problem)


def problems(metadata: dict[str, Any], rule: str, *, any_finalizer: bool) -> Iterator[FieldError]:
    """Everything wrong with the metadata of an object of a kind whose names follow ``rule``."""
    generate = metadata.get("generateName") or ""
    if generate:
        # A dash at its end is followed by the letters that make it unique.
        whole = f"{generate[:-2]}a" if len(generate) > 1 and generate.endswith("-") else generate
        for problem in name_problems(whole, rule):
            yield FieldError("metadata.generateName", "Invalid", generate, problem)
    name = metadata.get("name") or ""
    if not name:
        yield FieldError("metadata.name", "Required", "", "name or generateName is required")
    else:
        for problem in name_problems(name, rule):
            yield FieldError("metadata.name", "Invalid", name, problem)
    if labels := metadata.get("labels"):
        yield from label_problems(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        yield from _annotation_problems(annotations, "metadata.annotations")
    if finalizers := metadata.get("finalizers"):
        yield from _finalizer_problems(finalizers, "metadata.finalizers", any_finalizer)
    if owners := metadata.get("ownerReferences"):
        yield from _owner_problems(owners, "metadata.ownerReferences")


def _annotation_problems(annotations: dict[str, str], path: str) -> Iterator[FieldError]:
    for key in annotations:
        for problem in qualified_name(key.lower()):
            yield FieldError(path, "Invalid", key, problem)
    if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_BYTES:
        yield FieldError(path, "TooLong", "", f"may not be more than {_ANNOTATIONS_BYTES} bytes")


def _finalizer_problems(finalizers: Any, path: str, any_finalizer: bool) -> Iterator[FieldError]:
    for index, finalizer in enumerate(finalizers):
        for problem in qualified_name(finalizer):
            yield FieldError(path, "Invalid", finalizer, problem)
        if not any_finalizer and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            yield FieldError(f"{path}[{index}]", "Invalid", finalizer, message)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        message = "finalizer orphan and foregroundDeletion cannot be both set"
        yield FieldError(path, "Invalid", list(finalizers), message)


def _owner_problems(owners: Any, path: str) -> Iterator[FieldError]:
    controllers = []
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield FieldError(f"{path}[{index}].{field}", "Required", "", "must not be empty")
        version = owner.get("apiVersion") or ""
        if version.count("/") > 1:
            yield FieldError(f"{path}[{index}].apiVersion", "Invalid", version, "must be <group>/<version> or <version>")
        if version == "v1" and owner.get("kind") == "Event":
            yield FieldError(f"{path}[{index}]", "Invalid", owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            controllers.append(owner.get("kind", "") + "/" + owner.get("name", ""))
    if len(controllers) > 1:
        message = (
            f'Only one reference can have Controller set to true. Found "true" in references for {" and ".join(controllers)}'
        )
        yield FieldError(path, "Invalid", list(owners), message)


_KEPT: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "name",
    "namespace",
)


def immutable_problems(new: dict[str, Any], old: dict[str, Any], *, uid: bool) -> Iterator[FieldError]:
    """What a client sets to something else although only the server does; what it leaves out stays as it is."""
    fields = ("deletionTimestamp", "deletionGracePeriodSeconds")
    for field in ("uid", *fields) if uid else fields:
        if new.get(field) and new[field] != old.get(field):
            yield FieldError(f"metadata.{field}", "Invalid", new[field], "field is immutable")


def keep_server_fields(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Whatever a client sends, these stay as they are."""
    for field in _KEPT:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def update_problems(new: dict[str, Any], old: dict[str, Any]) -> Iterator[FieldError]:
    if old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            shown = ", ".join(f'"{finalizer}"' for finalizer in added)
            message = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
            yield FieldError("metadata.finalizers", "Forbidden", "", message)


def tidy(metadata: dict[str, Any]) -> None:
    """Empty collections are left out, as Go's ``omitempty`` does."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName"):
        if field in metadata and not metadata[field]:
            del metadata[field]
