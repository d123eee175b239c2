"""Parameters of a URL as values: numbers and flags as Go's decoder takes them, refused with its words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dray.apiserver.errors import bad_request

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_SHOWN: Final = 64


def number(query: Mapping[str, str], name: str) -> int | None:
    """The whole number that a parameter gives; None where it is absent."""
    text = query.get(name)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text):
        raise bad_request(syntax("strconv.ParseInt", text))
    found = int(text)
    if not -(2**63) <= found < 2**63:
        raise bad_request(f"strconv.ParseInt: parsing {_quoted(text)}: value out of range")
    return found


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """Whatever does not say no says yes; None where it is absent."""
    text = query.get(name)
    return None if text is None else text != "0" and text.lower() != "false"


def syntax(function: str, text: str) -> str:
    return f"{function}: parsing {_quoted(text)}: invalid syntax"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text[:_SHOWN]).decode()
