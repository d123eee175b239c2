"""One version of a defined kind: everything that follows from its schema, each part made when it is first needed.

Starting with many definitions must cost little, so nothing is compiled, and what compiles is not even loaded, before an object of
the kind is written or asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.api.kinds import Kind
from dray.api.validation.errors import FieldError
from dray.apiserver.registry import Context
from dray.apiserver.schema import UNKNOWN_FIELD, Problem, Schemas, Struct

if TYPE_CHECKING:
    from dray.apiserver.custom.fields import Declared
    from dray.apiserver.custom.rules import Rules
    from dray.apiserver.custom.structure import Node

Object = dict[str, Any]

# A value of a wrong shape: rules cannot be asked about it.
_BLOCKING = frozenset({"Required", "TooLong", "TooMany", "TypeInvalid"})
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)


class Shape:
    """A ``Structure``: the schema of one version."""

    def __init__(self, kind: Kind, schema: Object, schemas: Schemas, since: int | None = None) -> None:
        """``since`` is the revision after which every stored object has just this shape; None where that is not known."""
        self.kind, self._schema, self._schemas, self._since = kind, schema, schemas, since

    @cached_property
    def root(self) -> Node:
        from dray.apiserver.custom.structure import Node

        return Node(self._schema)

    @cached_property
    def _declared(self) -> Declared:
        from dray.apiserver.custom.fields import Declared

        return Declared(self.kind.api_version, self.kind.kind, self.root)

    @property
    def structs(self) -> Mapping[str, Struct]:
        return self._declared.structs

    @property
    def struct(self) -> Struct:
        return self._declared.struct

    @cached_property
    def published(self) -> Object:
        from dray.apiserver.custom.publishing import published

        return published(self._schema)

    @cached_property
    def rules(self) -> Rules | None:
        from dray.apiserver.custom.rules import Rules

        return Rules(self.root) if self.root.has_rules else None

    def normalise(self, obj: Object, *, fill: bool) -> tuple[Object, list[Problem]]:
        """The object as it is stored. Of nothing, nothing is made."""
        from dray.apiserver.custom.shaping import OWN, shaped

        if not obj:
            return {}, []
        metadata, problems = self._metadata(obj)
        unknown: list[str] = []
        rest = {name: value for name, value in obj.items() if name not in OWN}
        made = shaped(rest, self.root, "", unknown, fill=fill)
        problems += [Problem(path, f'unknown field "{path}"', UNKNOWN_FIELD) for path in unknown]
        own = {name: obj[name] for name in ("apiVersion", "kind") if name in obj}
        return {**own, **({"metadata": metadata} if metadata is not None else {}), **made}, problems

    def _metadata(self, obj: Object) -> tuple[Any, list[Problem]]:
        given = obj.get("metadata")
        if given is None:
            return None, []
        made, problems = self._schemas.part("meta.ObjectMeta", given)
        return made, [_below("metadata", problem) for problem in problems]

    def viewed(self, obj: Object) -> Object:
        """A stored object as this version shows it."""
        if self._since is not None and int(obj["metadata"].get("resourceVersion") or 0) > self._since:
            return obj
        made, _ = self.normalise({**obj, "apiVersion": self.kind.api_version}, fill=True)
        return made

    def check(self, obj: Object, old: Object | None, context: Context) -> Iterator[FieldError]:
        """For the registry: what the schema has against the object."""
        from dray.apiserver.custom import validation

        found = validation.problems(self.root, obj, old)
        yield from found
        if self.rules is None:
            return
        if any(problem.type in _BLOCKING for problem in found):
            yield FieldError("<nil>", "Invalid", None, _UNCHECKED)
        else:
            yield from self.rules.problems(obj, old)


def _below(path: str, problem: Problem) -> Problem:
    place = f"{path}.{problem.path}" if problem.path else path
    words = f'unknown field "{place}"' if problem.category == UNKNOWN_FIELD else problem.message
    return Problem(place, words, problem.category)
