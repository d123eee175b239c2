"""Values at run time, and what is true of all of them: equality, order, size, names.

bool, int, double, string, bytes and null are Python's own; a list is a tuple, a map is a dict, and no other value is a tuple
or a dict. ``True == 1`` in Python but not in CEL, so boolean map keys are stored as ``TRUE_KEY`` and ``FALSE_KEY`` and
equality never trusts ``==`` alone. No value is ever changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Any, Final, NamedTuple

from dray.api.quantity import Quantity
from dray.cel.errors import Failure

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
SIZE_MAX: Final = 1 << 20
"""No string or list made by an expression may be longer: upstream's costs do not bound this."""


class Uint(int):
    """An unsigned number; equal to the int of the same value, as CEL's heterogeneous equality has it."""

    __slots__ = ()


class _BoolKey(NamedTuple):
    """A boolean as a map key, distinct from 0 and 1."""

    value: bool


TRUE_KEY: Final = _BoolKey(True)
FALSE_KEY: Final = _BoolKey(False)


def to_key(value: Any) -> Any:
    """The form in which a value is a key of a dict; a Failure if it cannot be one."""
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value
    if kind is bool:
        return TRUE_KEY if value else FALSE_KEY
    if kind is float:
        return value
    raise Failure(f"unsupported key type: {type_name(value)}")


def from_key(key: Any) -> Any:
    return key.value if type(key) is _BoolKey else key


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970-01-01T00:00:00Z."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What ``type(x)`` gives."""

    name: str


class Optional:
    """``optional.of(x)`` or ``optional.none()``."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Any = None) -> None:
        self.present = present
        self.value = value


NONE: Final = Optional(False)


class Made:
    """A struct that an expression made: the name of its type, and its fields."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name, self.fields = name, fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Made) and self.name == other.name and equal(self.fields, other.fields)

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.fields)))


class Lazy:
    """A value with fields that are made when they are first asked for; what could not be made fails each time."""

    __slots__ = ("_made", "_makers")

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def field(self, name: Any, missing: Any) -> Any:
        if name not in self._makers:
            return missing
        if name not in self._made:
            try:
                self._made[name] = self._makers[name]()
            except Failure as failure:
                self._made[name] = failure
        found = self._made[name]
        if type(found) is Failure:
            raise found
        return found


@dataclass(frozen=True, slots=True)
class URL:
    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str


@total_ordering
class Semver:
    """A semantic version (semver.org 2.0). Build metadata is kept for printing and ignored in comparisons."""

    __slots__ = ("build", "key", "major", "minor", "patch", "pre")

    def __init__(self, major: int, minor: int, patch: int, pre: str = "", build: str = "") -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.pre = pre
        self.build = build
        self.key = (major, minor, patch, not pre, tuple(_identifier(part) for part in pre.split(".")) if pre else ())

    @staticmethod
    def parse(text: str) -> Semver:
        return _parse_semver(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key == other.key

    def __lt__(self, other: Semver) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        pre = f"-{self.pre}" if self.pre else ""
        build = f"+{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{build}"

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"


def _identifier(part: str) -> tuple[int, int, str]:
    """Numeric identifiers sort below the others, and by number."""
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


_NUMBER: Final = r"(0|[1-9][0-9]{0,19})"
_SEMVER: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII)


class SemverError(ValueError):
    """The text is not a semantic version."""


@lru_cache(maxsize=4096)
def _parse_semver(text: str) -> Semver:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise SemverError(f"{text[:80]!r} is not a semantic version")
    numbers = [int(found[index]) for index in (1, 2, 3)]
    pre, build = found[4] or "", found[5] or ""
    parts = pre.split(".") if pre else []
    bad = any(not part or (part.isdigit() and (len(part) > 20 or (len(part) > 1 and part[0] == "0"))) for part in parts)
    if bad or max(numbers) > UINT_MAX or (build and not all(build.split("."))):
        raise SemverError(f"{text[:80]!r} is not a semantic version")
    return Semver(numbers[0], numbers[1], numbers[2], pre, build)


# ------------------------------------------------------------------------------------------------------- names

_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    URL: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
    Lazy: "kubernetes.variables",
}


# Types that Kubernetes adds. Upstream compares each of them with its own kind only.
_OF_KUBERNETES: Final[set[type]] = {Quantity, Semver, URL, NamedFormat}


def register_name(kind: type, name: str) -> None:
    """For types of Kubernetes that live beside the functions that make them."""
    _NAMES[kind] = name
    _OF_KUBERNETES.add(kind)


def type_name(value: Any) -> str:
    """The name of the value's type, as ``type(x)`` and messages have it."""
    if type(value) is Made:
        return value.name
    for kind in type(value).__mro__:
        if kind in _NAMES:
            return _NAMES[kind]
    return type(value).__name__


# ------------------------------------------------------------------------------------------------------- lists


class Unordered(tuple[Any, ...]):
    """A list whose schema says that it is a set, or a map with these ``keys``: its order says nothing, and adding to it adds only
    what it does not have."""

    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, elements: Iterable[Any], keys: tuple[str, ...]) -> Unordered:
        made = cls(elements)
        made.keys = keys
        return made

    def same_as(self, other: tuple[Any, ...]) -> bool:
        if len(self) != len(other):
            return False
        mine, theirs = self._by_identity(self), self._by_identity(other)
        return mine.keys() == theirs.keys() and all(equal(element, theirs[key]) for key, element in mine.items())

    def plus(self, other: tuple[Any, ...]) -> Unordered:
        """In place of elements with the same keys, and behind all others."""
        return Unordered.of((self._by_identity(self) | self._by_identity(other)).values(), self.keys)

    def _by_identity(self, elements: tuple[Any, ...]) -> dict[Any, Any]:
        return {self._identity(element): element for element in elements}

    def _identity(self, element: Any) -> Any:
        if self.keys and isinstance(element, dict):
            return tuple([_frozen(element.get(key)) for key in self.keys])
        return _frozen(element)


def _frozen(value: Any) -> Any:
    """Equal for values that are, and fit for the key of a dict."""
    if isinstance(value, dict):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    if isinstance(value, tuple):
        return tuple([_frozen(each) for each in value])
    return ("number", value) if type(value) in _NUMBERS else (type(value), value)


# ---------------------------------------------------------------------------------------------------- equality

_NUMBERS: Final = frozenset({int, Uint, float})


def equal(a: Any, b: Any) -> bool:
    """CEL's equality: numbers across their types, everything else only within its type. Never fails, as ``!=``, ``in`` and what
    lists do; ``==`` is ``equals``."""
    kind, other = type(a), type(b)
    if kind is not other:
        if kind in _NUMBERS and other in _NUMBERS:
            return bool(a == b)
        if isinstance(a, dict):
            return isinstance(b, dict) and _equal_maps(a, b)
        return isinstance(a, tuple) and isinstance(b, tuple) and _equal_lists(a, b)
    if kind is tuple:
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return _equal_maps(a, b)
    if isinstance(a, Unordered):
        return a.same_as(b)
    if kind is Optional:
        return bool(a.present == b.present and (not a.present or equal(a.value, b.value)))
    return bool(a == b)


def equals(a: Any, b: Any) -> bool:
    """``a == b``: a Failure where a version, quantity or the like on the left meets another type, as upstream; null differs."""
    kind = type(a)
    if kind is not type(b) and kind in _OF_KUBERNETES and b is not None:
        raise Failure("no such overload")
    if kind is Optional and type(b) is Optional and a.present and b.present:
        return equals(a.value, b.value)
    return equal(a, b)


def _equal_lists(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """What is on the left decides whether order counts."""
    if isinstance(a, Unordered):
        return a.same_as(b)
    return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))


def _equal_maps(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    return all(key in b and equal(value, dict.__getitem__(b, key)) for key, value in a.items())


_ORDERED: Final = frozenset({bool, str, bytes, Duration, Timestamp})


def compare(a: Any, b: Any) -> int:
    """-1, 0 or 1; numbers across their types. A Failure where there is no order."""
    kind, other = type(a), type(b)
    if (kind is other and kind in _ORDERED) or (kind in _NUMBERS and other in _NUMBERS):
        if (kind is float and math.isnan(a)) or (other is float and math.isnan(b)):
            raise Failure("NaN values cannot be ordered")
        return int(a > b) - int(a < b)
    raise Failure("no such overload")


def size(value: Any) -> int:
    """Characters, bytes, elements or entries; 1 for what has no size. As costs count it."""
    kind = type(value)
    if kind is str or kind is bytes or isinstance(value, tuple | dict):
        return len(value)
    if kind is Optional and value.present:
        return size(value.value)
    return 1


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise Failure("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise Failure("unsigned integer overflow")


def bounded(length: int) -> None:
    """Refuses to make a string or list that is too long."""
    if length > SIZE_MAX:
        raise Failure(f"result is too large: {length} elements, at most {SIZE_MAX} are allowed")
