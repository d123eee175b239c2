"""Strings: the standard functions, the strings extension (version 2) and regular expressions through RE2."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from dray.cel.errors import Failure
from dray.cel.library.formatting import format_text, quote
from dray.cel.values import bounded

_SPACE: Final = "\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# Quoted text, and everything that a backslash makes of the next character.
_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_OPTIONS: Final = _options()


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """The compiled regular expression. RE2 takes time linear in the input and refuses patterns that are too large.

    Go refuses two things more: a single byte, and names of groups with other than letters, digits and _ of ASCII.
    """
    try:
        found = re2.compile(text, _OPTIONS)
    except (re2.error, UnicodeError) as error:
        raise Failure(f"error parsing regexp: {_words(error)}") from None
    if any(escape[0] == r"\C" for escape in _ESCAPE.finditer(text)):
        raise Failure(r"error parsing regexp: invalid escape sequence: `\C`")
    for name in found.groupindex:
        if not name.isascii():
            raise Failure(f"error parsing regexp: invalid named capture: `{name}`")
    return found


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def matches(text: str, expression: str) -> bool:
    return pattern(expression).search(text) is not None


def find(text: str, expression: str) -> str:
    found = pattern(expression).search(text)
    return "" if found is None else str(found[0])


def find_all(text: str, expression: str, limit: int = -1) -> tuple[str, ...]:
    """All matches that do not overlap; one without characters right after another does not count."""
    results: list[str] = []
    end = -1
    for found in pattern(expression).finditer(text):
        if 0 <= limit <= len(results):
            break
        if found.start() == found.end() == end:
            continue
        end = found.end()
        results.append(str(found[0]))
    return tuple(results)


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise Failure(f"index out of range: {index}")
    return text[index : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise Failure(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.find(part, start) if start < len(text) else -1


def last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def last_index_of_from(text: str, part: str, start: int) -> int:
    if start < 0:
        raise Failure(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    bounded(len(text) + count * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


def split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit >= len(text):
        return tuple(text)
    return (*text[: limit - 1], text[limit - 1 :])


def substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise Failure(f"index out of range: {start}")
    return text[start:]


def substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise Failure(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise Failure(f"index out of range: {index}")
    return text[start:end]


def join(parts: tuple[Any, ...], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise Failure(f"join: invalid input: {part}")
    bounded(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("contains", "contains_string", "string.(string) -> bool", lambda text, part: part in text),
    ("endsWith", "ends_with_string", "string.(string) -> bool", str.endswith),
    ("startsWith", "starts_with_string", "string.(string) -> bool", str.startswith),
    ("matches", "matches", "(string, string) -> bool", matches),
    ("matches", "matches_string", "string.(string) -> bool", matches),
    ("find", "string_find_string", "string.(string) -> string", find),
    ("findAll", "string_find_all_string", "string.(string) -> list(string)", find_all),
    ("findAll", "string_find_all_string_int", "string.(string, int) -> list(string)", find_all),
    ("charAt", "string_char_at_int", "string.(int) -> string", char_at),
    ("indexOf", "string_index_of_string", "string.(string) -> int", index_of),
    ("indexOf", "string_index_of_string_int", "string.(string, int) -> int", index_of),
    ("lastIndexOf", "string_last_index_of_string", "string.(string) -> int", last_index_of),
    ("lastIndexOf", "string_last_index_of_string_int", "string.(string, int) -> int", last_index_of_from),
    ("lowerAscii", "string_lower_ascii", "string.() -> string", lambda text: text.translate(_LOWER)),
    ("upperAscii", "string_upper_ascii", "string.() -> string", lambda text: text.translate(_UPPER)),
    ("replace", "string_replace_string_string", "string.(string, string) -> string", replace),
    ("replace", "string_replace_string_string_int", "string.(string, string, int) -> string", replace),
    ("split", "string_split_string", "string.(string) -> list(string)", split),
    ("split", "string_split_string_int", "string.(string, int) -> list(string)", split),
    ("substring", "string_substring_int", "string.(int) -> string", substring),
    ("substring", "string_substring_int_int", "string.(int, int) -> string", substring_range),
    ("trim", "string_trim", "string.() -> string", lambda text: text.strip(_SPACE)),
    ("join", "list_join", "list(string).() -> string", join),
    ("join", "list_join_string", "list(string).(string) -> string", join),
    ("format", "string_format", "string.(list(dyn)) -> string", format_text),
    ("strings.quote", "strings_quote", "(string) -> string", quote),
]

# Only where expressions make patches.
ESCAPE_KEY: Final[tuple[str, str, Callable[..., Any]]] = (
    "string_jsonpatch_escapeKey_string",
    "(string) -> string",
    lambda key: key.replace("~", "~0").replace("/", "~1"),
)
