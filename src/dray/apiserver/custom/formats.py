"""The string formats that Kubernetes checks. Formats that it does not know are allowed and mean nothing, so they are not here.

Names are without dashes, because ``date-time`` and ``datetime`` are one. Every check is linear in its text.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Final
from urllib.parse import urlsplit

from dray.api.names import label, subdomain

_LONGEST: Final = 64 * 1024
_UUID: Final = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_HOST_LABEL: Final = re.compile(r"[a-zA-Z0-9\u00a1-\uffff]([a-zA-Z0-9\u00a1-\uffff-]*[a-zA-Z0-9\u00a1-\uffff])?")
_DATE_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_GO_DURATION: Final = re.compile(r"[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_WORDY_DURATION: Final = re.compile(
    r"\d+\s*(ns|nano|nanosecond|nanoseconds|nanos|us|µs|micro|micros|microsecond|microseconds|ms|milli|millis|millisecond"
    r"|milliseconds|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours|d|day|days|w|wk|wks|week|weeks)",
    re.ASCII,
)


def _whole(expression: str) -> Callable[[str], bool]:
    compiled = re.compile(expression, re.ASCII | re.IGNORECASE)
    return lambda text: len(text) <= _LONGEST and compiled.fullmatch(text) is not None


def _uri(text: str) -> bool:
    """What Go's ``url.ParseRequestURI`` takes: absolute, or a path from the root."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  it is read to be checked
    except ValueError:
        return False
    clean = text.isprintable() and " " not in parts.netloc
    return clean and bool(parts.scheme or text.startswith("/"))


def _email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    return bool(at and local and domain) and not any(c in ' \t\r\n<>(),;:\\"[]' for c in local) and _hostname(domain)


def _hostname(text: str) -> bool:
    """Labels of at most 63 characters, 255 in all."""
    if not text or len(text) > 255:
        return False
    labels = text.removesuffix(".").split(".")
    return all(0 < len(part) <= 63 and _HOST_LABEL.fullmatch(part) for part in labels)


def _address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version and "%" not in text
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    address, slash, prefix = text.partition("/")
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return bool(slash) and prefix.isascii() and prefix.isdigit() and "%" not in address


def _mac(text: str) -> bool:
    """6, 8 or 20 bytes with colons, dashes or dots, as Go's ``net.ParseMAC``."""
    pair = r"[0-9a-f]{2}(?P<s>[:-])([0-9a-f]{2}(?P=s)){%d}[0-9a-f]{2}"
    dotted = r"[0-9a-f]{4}(\.[0-9a-f]{4}){%d}"
    if len(text) > 64:
        return False
    forms = [*(pair % (size - 2) for size in (6, 8, 20)), *(dotted % (size // 2 - 1) for size in (6, 8, 20))]
    return any(re.fullmatch(form, text, re.IGNORECASE | re.ASCII) for form in forms)


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text) if len(text) <= 64 else None
    if found is None or not _date(f"{found[1]}-{found[2]}-{found[3]}"):
        return False
    return int(found[4]) <= 23 and int(found[5]) <= 59 and int(found[6]) <= 60


def duration(text: str) -> bool:
    return len(text) <= 256 and bool(_GO_DURATION.fullmatch(text) or _WORDY_DURATION.fullmatch(text.strip()))


def _checksum(digits: str, weights: tuple[int, ...], modulus: int) -> bool:
    values = [10 if digit in "xX" else int(digit) for digit in digits]
    return sum(value * weights[index % len(weights)] for index, value in enumerate(values)) % modulus == 0


def _isbn(*lengths: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = re.sub(r"[\s-]", "", text[:64])
        if len(digits) == 10 and 10 in lengths and re.fullmatch(r"\d{9}[\dXx]", digits, re.ASCII):
            return _checksum(digits, tuple(range(10, 0, -1)), 11)
        if len(digits) == 13 and 13 in lengths and re.fullmatch(r"\d{13}", digits, re.ASCII):
            return _checksum(digits, (1, 3), 10)
        return False

    return check


def _credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]", "", text[:64])
    if not 13 <= len(digits) <= 19:
        return False
    doubled = [int(d) * (2 if index % 2 else 1) for index, d in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


CHECKED: Final[dict[str, Callable[[str], bool]]] = {
    "bsonobjectid": _whole(r"[0-9a-f]{24}"),
    "uri": _uri,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _address(4),
    "ipv6": _address(6),
    "cidr": _cidr,
    "mac": _mac,
    "uuid": _whole(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _whole(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _whole(_UUID % ("4", "[89ab]")),
    "uuid5": _whole(_UUID % ("5", "[89ab]")),
    "isbn": _isbn(10, 13),
    "isbn10": _isbn(10),
    "isbn13": _isbn(13),
    "creditcard": _credit_card,
    "ssn": _whole(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _whole(r"#?([0-9a-f]{3}|[0-9a-f]{6})"),
    "rgbcolor": _whole(r"rgb\(\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*(,\s*(\d{1,2}|1\d\d|2[0-4]\d|25[0-5])\s*){2}\)"),
    "byte": _base64,
    "password": lambda text: True,
    "date": _date,
    "duration": duration,
    "datetime": _date_time,
    "k8sshortname": lambda text: not label(text),
    "k8slongname": lambda text: not subdomain(text),
}
