"""What Kubernetes adds: quantities, semantic versions and named formats."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from dray.api.quantity import DECIMAL_EXPONENT, MAX, NANO, Quantity, QuantityError
from dray.cel.errors import Failure
from dray.cel.library.network import parse_url
from dray.cel.values import INT_MAX, NONE, NamedFormat, Optional, Semver, SemverError

# ---------------------------------------------------------------------------------------------------- quantities


def parse_quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise Failure(str(error)) from None


def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _fits_int(quantity: Quantity) -> bool:
    return quantity.nanos % NANO == 0 and abs(quantity.nanos) <= MAX * NANO


def as_integer(quantity: Quantity) -> int:
    if not _fits_int(quantity):
        raise Failure("cannot convert value to integer")
    return quantity.nanos // NANO


def as_float(quantity: Quantity) -> float:
    return quantity.nanos / NANO


def _whole(amount: int) -> Quantity:
    return Quantity(amount * NANO, DECIMAL_EXPONENT)


def _sign(amount: int) -> int:
    return (amount > 0) - (amount < 0)


# ------------------------------------------------------------------------------------------------------ versions


def parse_semver(text: str) -> Semver:
    try:
        return Semver.parse(text)
    except SemverError as error:
        raise Failure(str(error)) from None


def parse_semver_normalized(text: str, normalize: bool) -> Semver:
    """``v1.02`` is 1.2.0 when normalizing: no leading v, no leading zeros, missing parts are 0."""
    if not normalize:
        return parse_semver(text)
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] in tuple("123456789") else "0" + stripped
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise Failure("short version cannot contain PreRelease/Build meta data")
    return parse_semver(".".join(parts + ["0"] * (3 - len(parts))))


def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        parse_semver_normalized(text, normalize)
    except Failure:
        return False
    return True


def _number(value: int) -> int:
    # Go reads the parts as unsigned and shows them as signed numbers.
    return value if value <= INT_MAX else value - 2**64


def _compare(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


# ------------------------------------------------------------------------------------------------------- formats

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_DNS1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_DATETIME: Final = re.compile(
    r"(?i)(\d{4}-\d{2}-\d{2})t([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,24})?(z|[+-]\d{2}:\d{2})", re.ASCII
)

Validate = Callable[[str], list[str]]


def _shaped(expression: str, limit: int, message: str, prefix: bool = False) -> Validate:
    compiled = re.compile(expression, re.ASCII)

    def validate(text: str) -> list[str]:
        problems = [f"must be no more than {limit} characters"] if len(text) > limit else []
        # A generated name continues after a dash, so only what comes before is judged.
        judged = text[:-1] + "a" if prefix and len(text) > 1 and text.endswith("-") else text
        return problems if compiled.fullmatch(judged) else [*problems, message]

    return validate


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    problems: list[str] = []
    if "/" in prefix:
        return ["a qualified name is a name with an optional DNS subdomain prefix and '/'"]
    if slash:
        problems = [f"prefix part {why}" for why in (["must be non-empty"] if not prefix else _SUBDOMAIN_SHAPE(prefix))]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    return problems if re.fullmatch(_NAME, name, re.ASCII) else [*problems, _NAME_TEXT]


def _label_value(text: str) -> list[str]:
    problems = ["must be no more than 63 characters"] if len(text) > 63 else []
    return (
        problems
        if re.fullmatch(f"({_NAME})?", text, re.ASCII)
        else [*problems, "a valid label must be an empty string or " + _NAME_TEXT]
    )


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except Failure as failure:
        return [failure.message]
    return []


def _base64(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if text else ["invalid base64"]


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None


def _datetime(text: str) -> list[str]:
    found = _DATETIME.fullmatch(text)
    return [] if found and _is_date(found[1]) else ["invalid datetime"]


_SUBDOMAIN_SHAPE: Final = _shaped(_SUBDOMAIN, 253, _SUBDOMAIN_TEXT)
# name -> (its validator, the length of the regular expression that upstream charges for)
FORMATS: Final[dict[str, tuple[Validate, int]]] = {
    "dns1123Label": (_shaped(_LABEL, 63, _LABEL_TEXT), 30),
    "dns1123Subdomain": (_SUBDOMAIN_SHAPE, 60),
    "dns1035Label": (_shaped(_DNS1035, 63, _DNS1035_TEXT), 30),
    "qualifiedName": (_qualified_name, 60),
    "dns1123LabelPrefix": (_shaped(_LABEL, 63, _LABEL_TEXT, prefix=True), 30),
    "dns1123SubdomainPrefix": (_shaped(_SUBDOMAIN, 253, _SUBDOMAIN_TEXT, prefix=True), 60),
    "dns1035LabelPrefix": (_shaped(_DNS1035, 63, _DNS1035_TEXT, prefix=True), 30),
    "labelValue": (_label_value, 40),
    "uri": (_uri, 1103),
    "uuid": (lambda text: [] if _UUID.fullmatch(text) else ["does not match the UUID format"], 72),
    "byte": (_base64, 84),
    "date": (lambda text: [] if _is_date(text) else ["invalid date"], 80),
    "datetime": (_datetime, 80),
}


def validate(format: NamedFormat, text: str) -> Optional:
    problems = FORMATS[format.name][0](text)
    return Optional(True, tuple(problems)) if problems else NONE


def named(name: str) -> Optional:
    return Optional(True, NamedFormat(name)) if name in FORMATS else NONE


def _constant(name: str) -> Callable[[], NamedFormat]:
    return lambda: NamedFormat(name)


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("quantity", "string_to_quantity", "(string) -> quantity", parse_quantity),
    ("isQuantity", "is_quantity_string", "(string) -> bool", is_quantity),
    ("sign", "quantity_sign", "(quantity) -> int", lambda quantity: _sign(quantity.nanos)),
    ("isGreaterThan", "quantity_is_greater_than", "quantity.(quantity) -> bool", lambda a, b: a.nanos > b.nanos),
    ("isLessThan", "quantity_is_less_than", "quantity.(quantity) -> bool", lambda a, b: a.nanos < b.nanos),
    ("compareTo", "quantity_compare_to", "quantity.(quantity) -> int", lambda a, b: _compare(a.nanos, b.nanos)),
    ("asApproximateFloat", "quantity_get_float", "quantity.() -> double", as_float),
    ("asInteger", "quantity_get_int", "quantity.() -> int", as_integer),
    ("isInteger", "quantity_is_integer", "quantity.() -> bool", _fits_int),
    ("add", "quantity_add", "quantity.(quantity) -> quantity", lambda a, b: a + b),
    ("add", "quantity_add_int", "quantity.(int) -> quantity", lambda a, b: a + _whole(b)),
    ("sub", "quantity_sub", "quantity.(quantity) -> quantity", lambda a, b: a - b),
    ("sub", "quantity_sub_int", "quantity.(int) -> quantity", lambda a, b: a - _whole(b)),
    ("semver", "string_to_semver", "(string) -> semver", parse_semver),
    ("semver", "string_bool_to_semver", "(string, bool) -> semver", parse_semver_normalized),
    ("isSemver", "is_semver_string", "(string) -> bool", is_semver),
    ("isSemver", "is_semver_string_bool", "(string, bool) -> bool", is_semver),
    ("isGreaterThan", "semver_is_greater_than", "semver.(semver) -> bool", lambda a, b: a.key > b.key),
    ("isLessThan", "semver_is_less_than", "semver.(semver) -> bool", lambda a, b: a.key < b.key),
    ("compareTo", "semver_compare_to", "semver.(semver) -> int", lambda a, b: _compare(a.key, b.key)),
    ("major", "semver_major", "semver.() -> int", lambda version: _number(version.major)),
    ("minor", "semver_minor", "semver.() -> int", lambda version: _number(version.minor)),
    ("patch", "semver_patch", "semver.() -> int", lambda version: _number(version.patch)),
    ("validate", "format-validate", "format.(string) -> optional(list(string))", validate),
    ("format.named", "format-named", "(string) -> optional(format)", named),
    *((f"format.{name}", f"format.{name}", "() -> format", _constant(name)) for name in FORMATS),
]
