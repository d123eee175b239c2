"""Objects as their schema wants them: fields that it does not know go, defaults come in, nulls that it does not allow go.

Nothing is changed in place: what is given stays as it is, what comes back is the caller's.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from dray.apiserver.custom.structure import Node
from dray.apiserver.schema import UNKNOWN_FIELD, load

# What every object has, whether or not its schema says so.
OWN: Final = ("apiVersion", "kind", "metadata")


def shaped(value: Any, node: Node | None, path: str, unknown: list[str], *, fill: bool) -> Any:
    """The value with what is unknown in it left out and told by its path; with ``fill``, defaulted too.

    ``node`` is None where nothing is specified: members of objects are then unknown, everything else stays.
    """
    if type(value) is dict:
        return _object(value, node, path, unknown, fill=fill)
    if type(value) is list:
        items = node.items if node is not None else None
        if items is None and node is not None and node.open:
            return copy.deepcopy(value)
        return [shaped(each, items, f"{path}[{index}]", unknown, fill=fill) for index, each in enumerate(value)]
    return value


def _object(value: dict[str, Any], node: Node | None, path: str, unknown: list[str], *, fill: bool) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if node is None:
        unknown.extend(f"{path}.{name}" for name in value)
        return made
    for name, child in value.items():
        place = f"{path}.{name}" if path else name
        if node.embedded and name in OWN:
            made[name] = _own(name, child, place, unknown)
            continue
        known = node.properties.get(name)
        if known is None and node.extra:
            known = node.additional
        elif known is None:
            if node.open:
                made[name] = copy.deepcopy(child)
            else:
                unknown.append(place)
            continue
        if child is None and fill and known is not None and not known.nullable:
            continue
        made[name] = shaped(child, known, place, unknown, fill=fill)
    if fill:
        for name, default in node.defaults:
            if name not in made:
                made[name] = shaped(copy.deepcopy(default), node.properties[name], f"{path}.{name}", [], fill=True)
    return made


def _own(name: str, value: Any, path: str, unknown: list[str]) -> Any:
    """What an object within an object has as every object has it, whatever else the schema says of it."""
    if name != "metadata" or type(value) is not dict:
        return copy.deepcopy(value)
    made, problems = load().part("meta.ObjectMeta", value)
    unknown.extend(f"{path}.{problem.path}" for problem in problems if problem.category == UNKNOWN_FIELD)
    return made
