"""Label selectors, node selectors and field selectors, as apimachinery matches them; the text of label selectors is read by
``label_selectors``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.core import LabelSelector, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm


class SelectorError(ValueError):
    """The selector cannot be parsed. Whoever sent it must correct it."""


class Requirement(msgspec.Struct, frozen=True):
    """One condition on labels. ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and _compares(self.operator, value, self.values)
            case _:
                raise SelectorError(f"{self.operator!r} is not a valid selector operator")


def _compares(operator: str, value: str, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(value), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def matches_all(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in requirements)


# --------------------------------------------------------------------------------------------- LabelSelector objects


def label_requirements(selector: LabelSelector | None) -> tuple[Requirement, ...] | None:
    """A LabelSelector as requirements. None selects nothing; an empty one selects everything."""
    if selector is None:
        return None
    exact = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    return (*exact, *(Requirement(e.key, e.operator, e.values) for e in selector.match_expressions))


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    requirements = label_requirements(selector)
    return requirements is not None and matches_all(requirements, labels)


# ---------------------------------------------------------------------------------------------------- field selectors


_UNESCAPED: Final = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def parse_field_selector(text: str) -> tuple[tuple[str, str, str], ...]:
    """``a=b,c!=d`` as (field, operator, value); a comma, equals sign or backslash in a value is escaped by a backslash."""
    terms = []
    for part in re.findall(r"(?:[^,\\]|\\.?)+", text, re.DOTALL):
        found = re.match(r"(.*?)(==|!=|=)(.*)", part, re.DOTALL)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = found[1], "!=" if found[2] == "!=" else "=", _UNESCAPED.sub(_unescaped, found[3])
        if field or value:  # what says neither is about everything
            terms.append((field, operator, value))
    return tuple(terms)


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        raise SelectorError(f"invalid field selector: unescaped character in value: {found[0]}")
    if found[1] not in (",", "=", "\\"):
        raise SelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
    return found[1]


# ----------------------------------------------------------------------------------------------------- node selectors


def node_selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Terms are alternatives; an empty term and an empty list of terms match no node."""
    for term in selector.node_selector_terms:
        if node_term_matches(term, node):
            return True
    return False


def node_term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return _all_match(term.match_expressions, node.metadata.labels) and _all_match(term.match_fields, fields)


def _all_match(requirements: tuple[NodeSelectorRequirement, ...], values: Mapping[str, str]) -> bool:
    for required in requirements:
        if not Requirement(required.key, required.operator, required.values).matches(values):
            return False
    return True


def node_name_selector(name: str) -> NodeSelector:
    """The selector that upstream writes for 'this node only'."""
    return NodeSelector((NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", (name,)),)),))


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """The value of a dotted path in a plain object, as the text that a field selector compares."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
