"""Static types, and whether one can stand where another is asked for.

``dyn`` and ``any`` fit everywhere; type parameters are bound as calls are resolved. Bindings are kept in a dict that a failed
attempt leaves unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple


class Type(NamedTuple):
    kind: str
    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        shown = {"google.protobuf.Duration": "duration", "google.protobuf.Timestamp": "timestamp"}.get(self.name, self.name)
        return f"{shown}({', '.join(map(str, self.parameters))})" if self.parameters else shown


def _scalar(name: str) -> Type:
    return Type(name, name)


BOOL: Final = _scalar("bool")
INT: Final = _scalar("int")
UINT: Final = _scalar("uint")
DOUBLE: Final = _scalar("double")
STRING: Final = _scalar("string")
BYTES: Final = _scalar("bytes")
NULL: Final = Type("null", "null_type")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DYN: Final = _scalar("dyn")
ANY: Final = Type("any", "google.protobuf.Any")
QUANTITY: Final = Type("struct", "kubernetes.Quantity")
SEMVER: Final = Type("struct", "kubernetes.Semver")
URL: Final = Type("struct", "kubernetes.URL")
FORMAT: Final = Type("struct", "kubernetes.NamedFormat")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")
DEVICE: Final = Type("struct", "kubernetes.DRADevice")
AUTHORIZER: Final = Type("struct", "kubernetes.authorization.Authorizer")
PATH_CHECK: Final = Type("struct", "kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = Type("struct", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = Type("struct", "kubernetes.authorization.ResourceCheck")
DECISION: Final = Type("struct", "kubernetes.authorization.Decision")
_NULLABLE: Final = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_NESTED: Final = frozenset({"opaque", "list", "map"})


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "type", (value,))


def parameter(name: str) -> Type:
    return Type("parameter", name)


def unwrap_optional(kind: Type) -> tuple[Type, bool]:
    return (kind.parameters[0], True) if kind.name == "optional_type" and kind.parameters else (kind, False)


def is_dyn(kind: Type) -> bool:
    return kind.kind in ("dyn", "any")


# ------------------------------------------------------------------------------------------------ assignability

Bindings = dict[str, Type]


def assignable(bindings: Bindings, given: list[Type], wanted: list[Type]) -> Bindings | None:
    """The bindings under which each given type can stand for the wanted one, or None."""
    attempt = dict(bindings)
    fits = len(given) == len(wanted) and all(_fits(attempt, a, b) for a, b in zip(given, wanted))
    return attempt if fits else None


def _fits(bindings: Bindings, given: Type, wanted: Type) -> bool:
    if wanted.kind == "parameter":
        valid, bound = _bind(bindings, given, wanted)
        if valid or bound:
            return valid
    if given.kind == "parameter":
        return _bind(bindings, wanted, given)[0]
    if is_dyn(given) or is_dyn(wanted):
        return True
    if given.kind == "null" or wanted.kind == "null":
        other = wanted if given.kind == "null" else given
        return other.kind in _NULLABLE or other.kind == "null"
    if given.kind == "type":
        return wanted.kind == "type"
    if given.kind in _NESTED:
        same = given.kind == wanted.kind and given.name == wanted.name and len(given.parameters) == len(wanted.parameters)
        return same and all(_fits(bindings, a, b) for a, b in zip(given.parameters, wanted.parameters))
    return given == wanted


def _bind(bindings: Bindings, kind: Type, variable: Type) -> tuple[bool, bool]:
    """Whether the type parameter can be this type, and whether it was bound before."""
    if kind == variable:
        return True, True
    bound = bindings.get(variable.name)
    if bound is not None:
        if kind == bound:
            return True, True
        if not _fits(bindings, kind, bound):
            return False, True
        general = most_general(kind, bound)
        if not _occurs(bindings, variable, general):
            bindings[variable.name] = general
        return True, True
    if _occurs(bindings, variable, kind):
        return False, False
    bindings[variable.name] = kind
    return True, False


def most_general(a: Type, b: Type) -> Type:
    return a if _less_specific(a, b) else b


def _less_specific(a: Type, b: Type) -> bool:
    if is_dyn(a) or a.kind == "parameter":
        return True
    if is_dyn(b) or b.kind == "parameter" or a.kind != b.kind:
        return False
    if a.kind in _NESTED:
        same = a.name == b.name and len(a.parameters) == len(b.parameters)
        return same and all(_less_specific(x, y) for x, y in zip(a.parameters, b.parameters))
    return a.kind == "type" or a == b


def _occurs(bindings: Bindings, variable: Type, within: Type) -> bool:
    if variable == within:
        return True
    if within.kind == "parameter":
        bound = bindings.get(within.name)
        return bound is not None and _occurs(bindings, variable, bound)
    return any(_occurs(bindings, variable, inner) for inner in within.parameters)


def substitute(bindings: Bindings, kind: Type, to_dyn: bool = False) -> Type:
    """The type with bound parameters replaced; unbound ones become dyn if asked."""
    if kind.kind == "parameter":
        bound = bindings.get(kind.name)
        if bound is not None:
            return substitute(bindings, bound, to_dyn)
        return DYN if to_dyn else kind
    if not kind.parameters:
        return kind
    return kind._replace(parameters=tuple(substitute(bindings, inner, to_dyn) for inner in kind.parameters))


# ---------------------------------------------------------------------------------------------------- signatures


class Overload(NamedTuple):
    """One way to call a function. ``implementation`` takes the receiver first; None where the compiler does it itself."""

    id: str
    member: bool
    arguments: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Any] | None
    parameters: frozenset[str] = frozenset()


_SIGNATURE: Final = re.compile(r"(?:(?P<receiver>[^.]+(?:\([^.]*\))?)\.)?\((?P<arguments>.*)\) -> (?P<result>.+)")
_NAMED: Final = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES, "null": NULL, "dyn": DYN,
    "duration": DURATION, "timestamp": TIMESTAMP, "quantity": QUANTITY, "semver": SEMVER, "url": URL, "format": FORMAT,
    "ip": IP, "cidr": CIDR, "authorizer": AUTHORIZER, "pathCheck": PATH_CHECK, "groupCheck": GROUP_CHECK,
    "resourceCheck": RESOURCE_CHECK, "decision": DECISION,
}  # fmt: skip
_WORD: Final = re.compile(r"[a-zA-Z]+|[(),]")


def signature(id: str, text: str, implementation: Callable[..., Any] | None) -> Overload:
    """Reads ``list(T).(T) -> int`` (a member) or ``(string) -> bool`` (a function)."""
    found = _SIGNATURE.fullmatch(text)
    assert found is not None, text
    arguments = read_types(found["arguments"])
    if found["receiver"]:
        arguments = (*read_types(found["receiver"]), *arguments)
    result = read_types(found["result"])[0]
    names = frozenset(name for kind in (*arguments, result) for name in _parameter_names(kind))
    return Overload(id, found["receiver"] is not None, arguments, result, implementation, names)


def _parameter_names(kind: Type) -> set[str]:
    if kind.kind == "parameter":
        return {kind.name}
    return {name for inner in kind.parameters for name in _parameter_names(inner)}


@cache
def read_types(text: str) -> tuple[Type, ...]:
    words = _WORD.findall(text)
    found: list[Type] = []
    at = 0
    while at < len(words):
        kind, at = _read_type(words, at)
        found.append(kind)
        at += 1
    return tuple(found)


def _read_type(words: list[str], at: int) -> tuple[Type, int]:
    word = words[at]
    if at + 1 < len(words) and words[at + 1] == "(":
        inner: list[Type] = []
        at += 1
        while words[at] != ")":
            element, at = _read_type(words, at + 1)
            inner.append(element)
        kind, name = ("opaque", "optional_type") if word == "optional" else (word, word)
        return Type(kind, name, tuple(inner)), at + 1
    return (parameter(word) if word.isupper() else _NAMED[word]), at + 1
