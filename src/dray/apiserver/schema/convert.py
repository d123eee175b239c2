"""Makes an object what an API server would store: typed, pruned, canonical.

For every declared struct a converter is built once, on first use. It copies what is declared, drops the rest (and says so),
refuses values of the wrong type with the words of Go's decoder, writes quantities in canonical form, and adds or leaves out
empty fields as the declaration says. The input is never changed.

A change of a stored object is given together with that object: what is the same there, not only equal to it, was converted
when it was stored and is taken as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from dray.api.quantity import QuantityError, canonical
from dray.api.times import parse_time
from dray.apiserver.schema.text import Field, Struct, Type

Converter = Callable[[Any, list[str]], Any]
Lookup = Callable[[str], Struct]

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MICRO_LENGTH: Final = len("2006-01-02T15:04:05.000000Z")
_ZERO: Final = {"string": "", "bytes": "", "int32": 0, "int64": 0, "float": 0, "bool": False, "quantity": "0", "intOrString": 0}
_GO_NAMES: Final = {"bytes": "[]uint8", "float": "float64", "intOrString": "intstr.IntOrString", "any": "interface {}"}
_LIMITS: Final = {"int32": 2**31, "int64": 2**63}


class StructConverter(Protocol):
    def __call__(self, value: Any, unknown: list[str], stored: dict[str, Any] | None = None, /) -> Any:
        """Of a value, a list for the names of what is unknown in it, and the stored value that it was made from."""


class WrongType(ValueError):
    """A value cannot be decoded. ``path`` is made while the error travels outwards."""

    def __init__(self, message: str, got: str = "", wanted: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.got, self.wanted = got, wanted
        self.path: list[str] = []
        self.struct = ""

    @property
    def place(self) -> str:
        return "".join(reversed(self.path)).removeprefix(".")

    def __str__(self) -> str:
        if not self.wanted:
            return self.message
        names = ".".join(part[1:] for part in reversed(self.path) if part.startswith("."))
        field = f"Go struct field {self.struct}.{names}" if self.struct else "Go value"
        return f"json: cannot unmarshal {self.got} into {field} of type {self.wanted}"


def json_name(value: Any) -> str:
    """How Go's decoder calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return f"number {value}" if isinstance(value, float) else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "null"


def _mismatch(value: Any, wanted: str) -> WrongType:
    return WrongType("", json_name(value), _GO_NAMES.get(wanted, wanted))


def _string(value: Any, unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _mismatch(value, "string")
    return value


def _bool(value: Any, unknown: list[str]) -> Any:
    if type(value) is not bool:
        raise _mismatch(value, "bool")
    return value


def _integer(name: str) -> Converter:
    limit = _LIMITS[name]

    def convert(value: Any, unknown: list[str]) -> Any:
        if type(value) is not int:
            raise _mismatch(value, name)
        if not -limit <= value < limit:
            raise WrongType("", f"number {value}", name)
        return value

    return convert


def _float(value: Any, unknown: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(value, "float")
    return value


def _bytes(value: Any, unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _mismatch(value, "bytes")
    try:
        return base64.b64encode(base64.b64decode(value, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise WrongType("illegal base64 data") from None


def _quantity(value: Any, unknown: list[str]) -> Any:
    if isinstance(value, dict | list | bool):
        raise WrongType(_QUANTITY_WORDS)
    try:
        return canonical(value)
    except QuantityError:
        raise WrongType(_QUANTITY_WORDS) from None


_QUANTITY_WORDS: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _time(value: Any, unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _mismatch(value, "string")
    _instant(value)
    return value if value.endswith("Z") and "." not in value else _rewritten(value, "seconds")


def _micro_time(value: Any, unknown: list[str]) -> Any:
    if type(value) is not str:
        raise _mismatch(value, "string")
    _instant(value)
    return value if len(value) == _MICRO_LENGTH and value.endswith("Z") else _rewritten(value, "microseconds")


def _instant(value: str) -> None:
    if not _TIME.fullmatch(value):
        raise WrongType(f'parsing time "{value[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value[:64]}" as "2006"')
    try:
        parse_time(value)
    except ValueError as error:
        raise WrongType(f'parsing time "{value[:64]}": {error}') from None


def _rewritten(value: str, precision: str) -> str:
    whole, _, rest = value.partition(".")
    zone = re.search(r"(Z|[+-]\d\d:\d\d)$", value)
    digits = re.match(r"\d*", rest)
    fraction = (digits[0] if digits else "")[:6].ljust(6, "0")
    text = whole if rest == "" else whole + (zone[0] if zone else "Z")
    moment = datetime.fromisoformat(text).astimezone(UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}Z" if precision == "seconds" else f"{stamp}.{fraction}Z"


def _int_or_string(value: Any, unknown: list[str]) -> Any:
    if type(value) is str:
        return value
    return _integer("int32")(value, unknown)


def _any(value: Any, unknown: list[str]) -> Any:
    return value


_SCALARS: Final[dict[str, Converter]] = {
    "string": _string,
    "bool": _bool,
    "int32": _integer("int32"),
    "int64": _integer("int64"),
    "float": _float,
    "bytes": _bytes,
    "quantity": _quantity,
    "time": _time,
    "microtime": _micro_time,
    "intOrString": _int_or_string,
    "any": _any,
}


class Converters:
    """The converters of all structs, built when first needed. Without ``fill``, empty fields are neither added nor left out."""

    def __init__(self, lookup: Lookup, *, fill: bool = True) -> None:
        self._lookup, self._fill = lookup, fill
        self._structs: dict[str, StructConverter] = {}

    def struct(self, name: str) -> StructConverter:
        made = self._structs.get(name)
        if made is None:
            made = self._structs[name] = self._build(self._lookup(name))
        return made

    def of(self, type_: Type) -> Converter:
        if type_.shape == "scalar":
            return _SCALARS[type_.name]
        if type_.shape == "struct":
            return self.struct(type_.name)
        assert type_.item is not None
        item, empty = self.of(type_.item), self._empty(type_.item)
        return _list_of(item, empty) if type_.shape == "list" else _map_of(item, empty)

    def zero(self, type_: Type) -> Any:
        """What Go writes for the zero value; for a struct a new one must be made each time (None here)."""
        return _ZERO.get(type_.name) if type_.shape == "scalar" else None

    def _empty(self, type_: Type) -> Any:
        """What a null in a list or a map is converted as."""
        return self.zero(type_) if type_.shape == "scalar" else [] if type_.shape == "list" else {}

    def _build(self, struct: Struct) -> StructConverter:
        fields: dict[str, tuple[Converter, StructConverter | None, bool]] | None = None
        always: list[tuple[str, Callable[[list[str]], Any]]] = []
        label, fill = struct.name, self._fill

        def convert(value: Any, unknown: list[str], stored: dict[str, Any] | None = None) -> Any:
            if type(value) is not dict:
                raise WrongType("", json_name(value), f"{struct.package.rsplit('.', 1)[-1]}.{label}")
            nonlocal fields, always
            if fields is None:  # now, not before: structs may contain themselves
                fields = {field.name: self._member(field) for field in struct.fields.values()}
                always = [(field.name, self._filler(field)) for field in struct.fields.values() if fill and field.presence == "!"]
            made: dict[str, Any] = {}
            for key, given in value.items():
                known = fields.get(key)
                if known is None:
                    unknown.append(key)
                    continue
                if given is None:
                    continue
                convert_any, convert_struct, optional = known
                try:
                    if stored is None:
                        converted = convert_any(given, unknown)
                    elif (before := stored.get(key)) is given:
                        converted = given
                    elif convert_struct is not None and type(before) is dict:
                        converted = convert_struct(given, unknown, before)
                    else:
                        converted = convert_any(given, unknown)
                except WrongType as error:
                    error.path.append(f".{key}")
                    error.struct = error.struct or label
                    raise
                if converted or not optional or not fill:
                    made[key] = converted
            for key, filler in always:
                if key not in made:
                    made[key] = filler(unknown)
            return made

        return convert

    def _member(self, field: Field) -> tuple[Converter, StructConverter | None, bool]:
        """The converter, again if it is a struct's, and whether the field is left out when it is empty."""
        struct = self.struct(field.type.name) if field.type.shape == "struct" else None
        return struct or self.of(field.type), struct, not field.presence

    def _filler(self, field: Field) -> Callable[[list[str]], Any]:
        if field.type.shape == "struct":
            convert = self.of(field.type)
            return lambda unknown: convert({}, unknown)
        zero = self.zero(field.type)
        return lambda unknown: zero


def _list_of(item: Converter, empty: Any) -> Converter:
    def convert(value: Any, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise WrongType("", json_name(value), "[]")
        made = []
        for index, given in enumerate(value):
            try:
                made.append(item(empty if given is None else given, unknown))
            except WrongType as error:
                error.path.append(f"[{index}]")
                raise
        return made

    return convert


def _map_of(item: Converter, empty: Any) -> Converter:
    def convert(value: Any, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise WrongType("", json_name(value), "map")
        made = {}
        for key, given in value.items():
            try:
                made[key] = item(empty if given is None else given, unknown)
            except WrongType as error:
                error.path.append(f".{key}")
                raise
        return made

    return convert
