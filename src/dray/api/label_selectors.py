"""The text of label selectors, read as apimachinery reads it and refused in its words: ``a=b,c!=d,e in (f,g),h,!i,j>5``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from dray.api.names import label_value, qualified_name
from dray.api.selectors import Requirement, SelectorError

_TOKEN: Final = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_SPECIAL: Final = frozenset("=!(),<>")
_EXACT: Final = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_SETS: Final = {"in": "In", "notin": "NotIn"}
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@lru_cache(maxsize=4096)
def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """Requirements, all of which must hold."""
    return _Parser(_TOKEN.findall(text)).requirements()


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._position = tokens, 0

    def requirements(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while token := self._next():
            if not _starts(token):
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if not self._next():
                break
            if (token := self._take()) != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
            if not _starts(self._next()):
                raise SelectorError(f"found '{self._next()}', expected: identifier after ','")
        return tuple(found)

    def _next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._position += 1
        return token

    def _requirement(self) -> Requirement:
        negated = self._next() == "!"
        if negated:
            self._take()
        key = self._take()
        if not _identifies(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if problems := qualified_name(key):
            raise SelectorError(f"<nil>: Invalid value: {_quoted(key)}: {'; '.join(problems)}")
        if negated or self._next() in ("", ","):
            return Requirement(key, "DoesNotExist" if negated else "Exists")
        operator = self._take()
        if operator in _SETS:
            return _checked(Requirement(key, _SETS[operator], self._set()))
        if operator in _EXACT:
            return _checked(Requirement(key, _EXACT[operator], (self._exact(),)))
        raise SelectorError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _exact(self) -> str:
        if self._next() in ("", ","):
            return ""
        value = self._take()
        if not _identifies(value):
            raise SelectorError(f"found '{value}', expected: identifier")
        return value

    def _set(self) -> tuple[str, ...]:
        """Values in parentheses; nothing between two commas is the empty value."""
        if (token := self._take()) != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        values, last = set(), ""
        while (token := self._take()) != ")":
            if token == ",":
                values.add(last)
                last = ""
            elif not _identifies(token) or last:
                raise SelectorError(f"found '{token}', expected: ',' or ')'")
            else:
                last = token
        return tuple(sorted(values | {last}))


def _identifies(token: str) -> bool:
    return bool(token) and token[0] not in _SPECIAL


def _starts(token: str) -> bool:
    return token == "!" or _identifies(token)


def _checked(required: Requirement) -> Requirement:
    problems = []
    for index, value in enumerate(required.values):
        if required.operator in ("Gt", "Lt") and not _NUMBER.fullmatch(value):
            words = "for 'Gt', 'Lt' operators, the value must be an integer"
            problems.append(f"values[{index}]: Invalid value: {_quoted(value)}: {words}")
        elif wrong := label_value(value):
            problems.append(f"values[{index}][{required.key}]: Invalid value: {_quoted(value)}: {'; '.join(wrong)}")
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return required


def _quoted(value: str) -> str:
    return msgspec.json.encode(value).decode()
