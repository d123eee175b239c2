"""Names in ``resource.k8s.io``: drivers, pools, devices, attributes, requests."""

from __future__ import annotations

import re
from typing import Final

from dray.api import names
from dray.api.validation.errors import Errors, invalid, longest, named, required, too_long

DRIVER_LENGTH: Final = 63
POOL_LENGTH: Final = 253
ID_LENGTH: Final = 32
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def driver_name(name: str | None, path: str) -> Errors:
    """A DNS subdomain of at most 63 characters; upper case is discouraged but accepted."""
    if not name:
        yield required(path)
        return
    if len(name) > DRIVER_LENGTH:
        yield too_long(path, DRIVER_LENGTH)
    for problem in names.subdomain(name.lower()):
        yield invalid(path, name, problem)


def pool_name(name: str | None, path: str) -> Errors:
    """One or more DNS subdomains between slashes."""
    if not name:
        yield required(path)
        return
    if len(name) > POOL_LENGTH:
        yield too_long(path, POOL_LENGTH)
    for part in name.split("/"):
        yield from named(names.subdomain, part, path)


def device_name(name: str | None, path: str) -> Errors:
    yield from named(names.label, name or "", path)


def attribute_name(name: str, path: str) -> Errors:
    """``identifier`` or ``domain/identifier``. As upstream, a name with more slashes is not looked at."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(parts[0], path)
    elif len(parts) == 2:
        domain, identifier = parts
        if domain:
            yield from driver_name(domain, path)
        else:
            yield invalid(path, "", "the domain must not be empty")
        if identifier:
            yield from _identifier(identifier, path)
        else:
            yield invalid(path, "", "the name must not be empty")


def full_attribute_name(name: str, path: str) -> Errors:
    yield from attribute_name(name, path)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _identifier(name: str, path: str) -> Errors:
    yield from longest(name, ID_LENGTH, path)
    yield from named(names.c_identifier, name, path)


def share_id(value: str, path: str) -> Errors:
    if not _UUID.fullmatch(value):
        yield invalid(
            path,
            value,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
            "characters",
        )
