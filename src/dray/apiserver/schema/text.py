"""Reads the declarations of API types (the ``*.schema`` files beside this module).

One line declares one thing::

    package io.k8s.api.core.v1          where the types of this file live
    group v1                            the API version of its kinds
    kind Pod -- words                   a served kind: apiVersion, kind and metadata are implied
    type Container atomic -- words      a struct; ``atomic``: merged as a whole
      ports []ContainerPort patch=merge:containerPort list=containerPort,protocol -- words

A field's type is a scalar (``string int32 int64 bool float bytes quantity time microtime intOrString any``), a struct of
this file or ``file.Struct``, ``[]type`` or ``map type``; ``string(A|B)`` lists the known values. A mark after the type says
when the field is written: ``!`` always, ``?`` when it was given (even if empty), nothing: when it is not empty. After that:
``required``; ``patch=strategy[:key]`` as strategic merge patches need it; ``list=keys`` (``key:value`` where an absent key
means that value), ``set`` or ``atomic`` as apply needs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final

SCALARS: Final = frozenset(
    {"string", "int32", "int64", "bool", "float", "bytes", "quantity", "time", "microtime", "intOrString", "any"}
)
_FIELD: Final = re.compile(r"  (\S+) ((?:\[\]|map )*)([\w.]+)(?:\(([^)]*)\))?([!?]?)(?: (.*))?")
_HEAD: Final = re.compile(r"(kind|type) (\w+)( atomic)?")


class SchemaError(ValueError):
    """A declaration cannot be read. Dray's own files are wrong."""


@dataclass(frozen=True, slots=True)
class Type:
    """What a value is: ``shape`` is one of ``scalar``, ``struct``, ``list``, ``map``.

    ``list_type`` says how a list is merged (``map``, by its keys; ``set``; as a whole otherwise), or that a map is ``atomic``.
    ``key_defaults`` are what absent keys count as.
    """

    shape: str
    name: str = ""
    item: Type | None = None
    values: tuple[str, ...] = ()
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    key_defaults: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct. ``presence`` is ``!`` (always written), ``?`` (as given) or empty (unless empty)."""

    name: str
    type: Type
    presence: str
    required: bool = False
    strategies: tuple[str, ...] = ()
    merge_key: str = ""
    words: str = ""


# What is not declared is open itself.
OPEN: Final = Type("struct", "custom.Open")


@dataclass(slots=True)
class Struct:
    """A declared type. ``kind`` is true for those that are served as objects of their own; one that is ``open`` may have fields
    that are not declared."""

    name: str
    package: str
    kind: bool
    atomic: bool
    words: str
    fields: dict[str, Field] = field(default_factory=dict)
    open: bool = False

    def member(self, name: str) -> Field | None:
        """The declaration of a field, made up for one that is not declared but may be there."""
        found = self.fields.get(name)
        return Field(name, OPEN, "?") if found is None and self.open else found

    @property
    def full_name(self) -> str:
        return f"{self.package}.{self.name}"


OPEN_STRUCT: Final = Struct("Open", "custom", False, False, "", open=True)


@cache
def read(name: str) -> dict[str, Struct]:
    """The structs of one file by name. References to structs are made full: ``core.PodSpec``."""
    text = resources.files(__package__).joinpath(f"{name}.schema").read_text(encoding="utf-8")
    return _parse(name, text)


def _parse(file: str, text: str) -> dict[str, Struct]:
    structs: dict[str, Struct] = {}
    package = ""
    current: Struct | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        declaration, _, words = line.partition(" -- ")
        if line.startswith("  "):
            if current is None:
                raise SchemaError(f"{file}.schema:{number}: a field outside of a type")
            declared = _field(file, number, declaration, words)
            current.fields[declared.name] = declared
        elif line.startswith("package "):
            package = line[8:]
        elif not line.startswith("group "):  # which is for those who read the file
            current = _struct(file, number, declaration, words, package)
            structs[current.name] = current
    return structs


def _struct(file: str, number: int, declaration: str, words: str, package: str) -> Struct:
    found = _HEAD.fullmatch(declaration)
    if found is None:
        raise SchemaError(f"{file}.schema:{number}: cannot read {declaration!r}")
    struct = Struct(found[2], package, found[1] == "kind", found[3] is not None, words)
    if struct.kind:
        for implied in IMPLIED[:2] if struct.name in _WITHOUT_METADATA else IMPLIED:
            struct.fields[implied.name] = implied
    return struct


IMPLIED: Final = (
    Field("apiVersion", Type("scalar", "string"), "", words="The version of the API that this object is written in."),
    Field("kind", Type("scalar", "string"), "", words="What this object is."),
    Field("metadata", Type("struct", "meta.ObjectMeta"), "!", words="The object's name, labels and life."),
)
_WITHOUT_METADATA: Final = ("Status", "DeleteOptions")


def _field(file: str, number: int, declaration: str, words: str) -> Field:
    found = _FIELD.fullmatch(declaration)
    if found is None:
        raise SchemaError(f"{file}.schema:{number}: cannot read {declaration!r}")
    name, wrappers, base, values, presence, flags = found.groups()
    type_ = _base_type(file, base, values)
    for wrapper in reversed(re.findall(r"\[\]|map ", wrappers)):
        type_ = Type("list" if wrapper == "[]" else "map", item=type_)
    return _flagged(Field(name, type_, presence, words=words), (flags or "").split(), f"{file}.schema:{number}")


def _base_type(file: str, base: str, values: str | None) -> Type:
    if base in SCALARS:
        known = tuple("" if value == '""' else value for value in values.split("|")) if values else ()
        return Type("scalar", base, values=known)
    return Type("struct", base if "." in base else f"{file.replace('.', '_')}.{base}")


def _flagged(declared: Field, flags: list[str], place: str) -> Field:
    for flag in flags:
        word, _, value = flag.partition("=")
        if word == "required":
            declared = replace(declared, required=True)
        elif word == "patch":
            strategies, _, key = value.partition(":")
            declared = replace(declared, strategies=tuple(strategies.split(",")), merge_key=key)
        elif word == "list":
            keys = [key.partition(":") for key in value.split(",")]
            defaults = tuple((name, default) for name, colon, default in keys if colon)
            named = tuple(key[0] for key in keys)
            merged = replace(declared.type, list_type="map", list_keys=named, key_defaults=defaults)
            declared = replace(declared, type=merged)
        elif word in ("set", "atomic"):
            declared = replace(declared, type=replace(declared.type, list_type=word))
        else:
            raise SchemaError(f"{place}: unknown word {flag!r}")
    return declared
