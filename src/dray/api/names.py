"""The syntax of names. Each rule gives what is wrong with a text, in the words of apimachinery; nothing when it is right.

All of them take linear time on any text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LABEL_LENGTH: Final = 63
# The letters that the API makes names of: no vowels, so no words.
GENERATED_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
SUBDOMAIN_LENGTH: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_C_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ENV_NAME: Final = re.compile(r"[ -<>-~]+", re.ASCII)
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_PORT_NAME: Final = re.compile(r"[-a-z0-9]+", re.ASCII)
_SEMVER_PART: Final = r"(?:0|[1-9]\d*)"
_SEMVER_PRE: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"{_SEMVER_PART}\.{_SEMVER_PART}\.{_SEMVER_PART}(?:-{_SEMVER_PRE}(?:\.{_SEMVER_PRE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)

_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_WORDS: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_C_WORDS: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_ENV_WORDS: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIG_KEY_WORDS: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
    " or 'key-name', "
    "regex used for validation is '[-._a-zA-Z0-9]+')"
)


def too_long(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def _is_subdomain(name: str) -> bool:
    if "." not in name:
        return _LABEL.fullmatch(name) is not None
    return all(_LABEL.fullmatch(part) for part in name.split("."))


def label(name: str) -> list[str]:
    """RFC 1123 label: containers, requests, devices."""
    problems = [too_long(LABEL_LENGTH)] if len(name) > LABEL_LENGTH else []
    return problems + ([] if _LABEL.fullmatch(name) else [_LABEL_WORDS])


def label1035(name: str) -> list[str]:
    """A label that begins with a letter."""
    return [] if len(name) <= LABEL_LENGTH and _LABEL_1035.fullmatch(name) else [_LABEL_1035_WORDS]


def subdomain(name: str) -> list[str]:
    """RFC 1123 subdomain: most objects."""
    return _subdomain(name, "characters")


def _subdomain(name: str, unit: str) -> list[str]:
    problems = [too_long(SUBDOMAIN_LENGTH, unit)] if len(name) > SUBDOMAIN_LENGTH else []
    return problems + ([] if _is_subdomain(name) else [_SUBDOMAIN_WORDS])


def qualified_name(name: str) -> list[str]:
    """``key`` or ``domain/key``: labels, annotations, taints, conditions."""
    return list(_remembered(name)) if len(name) <= SUBDOMAIN_LENGTH else _qualified_name(name)


@lru_cache(maxsize=4096)
def _remembered(name: str) -> list[str]:
    """The same few keys are on every object. Long names are not kept: they could fill the memory."""
    return _qualified_name(name)


def _qualified_name(name: str) -> list[str]:
    prefix, slash, key = name.rpartition("/")
    problems: list[str] = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        elif "/" in prefix:
            return [
                f"a valid label key {_QUALIFIED_WORDS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        else:
            problems += [f"prefix part {problem}" for problem in _subdomain(prefix, "bytes")]
    if not key:
        problems.append("name part must be non-empty")
    elif len(key) > LABEL_LENGTH:
        problems.append(f"name part {too_long(LABEL_LENGTH, 'bytes')}")
    if not _QUALIFIED.fullmatch(key):
        problems.append(f"name part {_QUALIFIED_WORDS}")
    return problems


def label_value(value: str) -> list[str]:
    problems = [too_long(LABEL_LENGTH, "bytes")] if len(value) > LABEL_LENGTH else []
    return problems + ([] if value == "" or _QUALIFIED.fullmatch(value) else [_VALUE_WORDS])


def c_identifier(name: str) -> list[str]:
    return [] if _C_IDENTIFIER.fullmatch(name) else [_C_WORDS]


def env_name(name: str) -> list[str]:
    return [] if _ENV_NAME.fullmatch(name) else [_ENV_WORDS]


def config_key(key: str) -> list[str]:
    """A key of a ConfigMap or Secret: it may become a file name."""
    if len(key) > SUBDOMAIN_LENGTH:
        return [too_long(SUBDOMAIN_LENGTH)]
    if not _CONFIG_KEY.fullmatch(key):
        return [_CONFIG_KEY_WORDS]
    if key == ".":
        return ["must not be '.'"]
    return ["must not start with '..'"] if key.startswith("..") else []


def port_name(name: str) -> list[str]:
    problems = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not _PORT_NAME.fullmatch(name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def is_semver(version: str) -> bool:
    """Semantic version 2.0.0, strictly: no leading v, no leading zeros."""
    return _SEMVER.fullmatch(version) is not None


_NATIVE_DOMAIN: Final = "kubernetes.io/"


def is_native_resource(name: str) -> bool:
    return "/" not in name or name.startswith(_NATIVE_DOMAIN) or f".{_NATIVE_DOMAIN}" in name


def extended_resource(name: str) -> list[str]:
    """A resource that is not Kubernetes' own and may be counted by nodes: ``example.com/gpu``."""
    if "/" not in name:
        return ["a name must be a domain-prefixed path, such as 'example.com/my-prop'"]
    if is_native_resource(name):
        return ['must not have "kubernetes.io/" domain']
    if name.startswith("requests."):
        return ['must not have "requests." prefix']
    return qualified_name(f"requests.{name}")


def is_extended_resource(name: str) -> bool:
    return not extended_resource(name)
