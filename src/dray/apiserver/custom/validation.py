"""Whether an object is what its schema allows.

What was stored before and has not changed is not looked at again, so that a schema may become stricter while its objects live.
Whatever the schema and the object are, each value is looked at once per alternative of ``anyOf`` and its like, and the number of
errors is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from dray.api.validation.errors import FieldError
from dray.apiserver.custom.structure import ABSENT, Node, same
from dray.apiserver.schema import WRONG_TYPE, load

MAX_ERRORS: Final = 100
MAX_STEPS: Final = 500_000


class TooMuch(Exception):
    """There is more wrong, or more to look at, than is looked at."""


def problems(node: Node, obj: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Everything wrong with an object, but for its metadata, which every kind has checked in the same way."""
    checker = _Checker()
    try:
        checker.inside(node, obj, "", old if old is not None else ABSENT)
    except TooMuch as error:
        checker.found.append(FieldError("", "Invalid", "", str(error)))
    return checker.found


class _Checker:
    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.steps = 0

    def say(self, problem: FieldError) -> None:
        self.found.append(problem)
        if len(self.found) >= MAX_ERRORS:
            raise TooMuch(f"there are more than {MAX_ERRORS} errors; only the first are shown")

    def value(self, node: Node, value: Any, path: str, old: Any) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooMuch(
                f"checking this object takes more than {MAX_STEPS} steps; simplify anyOf, oneOf and allOf in its schema"
            )
        if old is not ABSENT and same(value, old):
            return
        if value is None and node.nullable:
            return
        if wrong := _wrong_type(node, value):
            self.say(FieldError(path, "TypeInvalid", wrong[1], f'{path} in body must be of type {wrong[0]}: "{wrong[1]}"'))
            return
        self.inside(node, value, path, old)

    def inside(self, node: Node, value: Any, path: str, old: Any) -> None:
        for keyword in node.keywords:
            for problem in keyword(value, path):
                self.say(problem)
        if type(value) is dict:
            self.members(node, value, path, old)
        elif type(value) is list:
            self.elements(node, value, path, old)
        self.junctions(node, value, path)

    def members(self, node: Node, value: dict[str, Any], path: str, old: Any) -> None:
        before = old if type(old) is dict else {}
        for name in node.required:
            if name not in value:
                self.say(FieldError(_below(path, name), "Required", ""))
        if node.embedded:
            for problem in _embedded(value, path):
                self.say(problem)
        for name, child in value.items():
            known = node.member(name)
            if known is not None:
                self.value(known, child, _below(path, name), before.get(name, ABSENT))

    def elements(self, node: Node, values: list[Any], path: str, old: Any) -> None:
        if node.list_type in ("set", "map"):
            for problem in _repeated(node, values, path):
                self.say(problem)
        if node.items is None:
            return
        before = _by_keys(node, old) if node.list_type == "map" and type(old) is list else {}
        for index, value in enumerate(values):
            known = before.get(_key(node, value), ABSENT) if before else ABSENT
            self.value(node.items, value, f"{path}[{index}]", known)

    # ------------------------------------------------------------------------------------------- allOf, anyOf, oneOf, not

    def junctions(self, node: Node, value: Any, path: str) -> None:
        for each in node.all_of:
            self.value(each, value, path, ABSENT)
        if node.any_of:
            failures = [self.tried(each, value, path) for each in node.any_of]
            if all(failures):
                self.say(_invalid(path, value, "must validate at least one schema (anyOf)"))
                self.nearest(failures)
        if node.one_of:
            failures = [self.tried(each, value, path) for each in node.one_of]
            fine = sum(not failed for failed in failures)
            if fine != 1:
                found = "none valid" if fine == 0 else f"{fine} valid alternatives"
                self.say(_invalid(path, value, f"must validate one and only one schema (oneOf). Found {found}"))
                if fine == 0:
                    self.nearest(failures)
        if node.none_of is not None and not self.tried(node.none_of, value, path):
            self.say(_invalid(path, value, "must not validate the schema (not)"))

    def tried(self, node: Node, value: Any, path: str) -> list[FieldError]:
        mine, self.found = self.found, []
        try:
            self.value(node, value, path, ABSENT)
            return self.found
        finally:
            self.found = mine

    def nearest(self, failures: list[list[FieldError]]) -> None:
        for problem in min(failures, key=len):
            self.say(problem)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _invalid(path: str, value: Any, words: str) -> FieldError:
    return FieldError(path, "Invalid", value, f'"{path}" {words}')


# ------------------------------------------------------------------------------------------------------------------ types


def _wrong_type(node: Node, value: Any) -> tuple[str, str] | None:
    """The type that is wanted and the one that is given."""
    given = json_type(value)
    if node.int_or_string:
        return None if given in ("integer", "string") else ("integer,string", given)
    wanted = node.type
    if not wanted or wanted == given or (wanted == "number" and given == "integer"):
        return None
    if wanted == "integer" and type(value) is float and value.is_integer():
        return None
    return wanted, given


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _embedded(value: dict[str, Any], path: str) -> Iterator[FieldError]:
    for name in ("apiVersion", "kind"):
        found = value.get(name)
        if not found:
            yield FieldError(_below(path, name), "Required", "", "must not be empty")
        elif type(found) is not str:
            yield FieldError(_below(path, name), "Invalid", found, "must be a string")
    metadata = value.get("metadata", {})
    if not isinstance(metadata, dict):
        yield FieldError(_below(path, "metadata"), "Invalid", metadata, "must be an object")
        return
    for problem in load().part("meta.ObjectMeta", metadata)[1]:
        if problem.category == WRONG_TYPE:
            yield FieldError(_below(path, "metadata"), "Invalid", metadata, problem.message)


# ------------------------------------------------------------------------------------------------------------------ lists


def _key(node: Node, value: Any) -> str:
    if node.list_type == "map" and isinstance(value, dict):
        return _text({name: value.get(name, _default(node, name)) for name in node.list_keys})
    return _text(value)


def _default(node: Node, name: str) -> Any:
    known = node.items.properties.get(name) if node.items is not None else None
    return None if known is None or known.default is ABSENT else known.default


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _by_keys(node: Node, values: list[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for value in values:
        made.setdefault(_key(node, value), value)
    return made


def _repeated(node: Node, values: list[Any], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        key = _key(node, value)
        if key in seen:
            yield FieldError(f"{path}[{index}]", "Duplicate", json.loads(key))
        seen.add(key)
