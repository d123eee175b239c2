"""The roles and bindings that every cluster has from the start (``defaults.policy``), made and kept up to date.

Always true: what an administrator added stays; what was taken away from a default comes back at the next start, unless the
object's annotation ``rbac.authorization.kubernetes.io/autoupdate`` is "false".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from dray.api.access import ClusterRole, PolicyRule
from dray.api.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Kind
from dray.apiserver.authorization.covering import missing
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.registry import Resource
from dray.controllers.aggregation import as_json, gathered

Object = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"
_AGGREGATE: Final = f"{_GROUP}/aggregate-to-"
_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")


def furnish(operations: Operations) -> None:
    """Make the defaults that are not there, and complete those that are."""
    options = WriteOptions(manager="dray")
    for kind, default in defaults():
        resource, metadata = operations.registry.of(kind), default["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        found = operations.find(resource, namespace, name)
        if found is None:
            operations.create(resource, namespace, default, options)
        elif (changed := _completed(found.copy(), default)) is not None:
            _replace(operations, resource, changed, options)


def _replace(operations: Operations, resource: Resource, changed: Object, options: WriteOptions) -> None:
    metadata = changed["metadata"]
    operations.update(resource, metadata.get("namespace", ""), metadata["name"], lambda old: changed, options)


def _completed(found: Object, default: Object) -> Object | None:
    """What is stored with what the default has and it lacks; None when it lacks nothing or wants to be left alone."""
    if (found["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false" or default.get("aggregationRule"):
        return None
    if "roleRef" in default:
        lacking = [subject for subject in default.get("subjects") or () if subject not in (found.get("subjects") or ())]
        return found | {"subjects": [*(found.get("subjects") or ()), *lacking]} if lacking else None
    owned, wanted = (msgspec.convert(each.get("rules") or [], list[PolicyRule]) for each in (found, default))
    rules = missing(owned, wanted)
    return found | {"rules": [*(found.get("rules") or ()), *as_json(rules)]} if rules else None


# ------------------------------------------------------------------------------------------------------------ declarations


@cache
def _text() -> str:
    return resources.files(__package__).joinpath("defaults.policy").read_text(encoding="utf-8")


def defaults() -> list[tuple[Kind, Object]]:
    """The default objects, roles that gather with the rules that they gather."""
    made = list(map(_declared, _paragraphs(_text())))
    roles = [msgspec.convert(obj, ClusterRole) for kind, obj in made if kind is CLUSTER_ROLES]
    # a role may gather what another one gathers: as deep as there are such roles
    for _ in range(3):
        for role in roles:
            if role.aggregation_rule is not None:
                role.rules = tuple(gathered(role, roles))
    rules = {role.key: as_json(role.rules) for role in roles}
    return [(kind, obj | {"rules": rules[obj["metadata"]["name"]]} if kind is CLUSTER_ROLES else obj) for kind, obj in made]


def _paragraphs(text: str) -> Iterator[list[str]]:
    """A head and the indented lines below it."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" ") and lines:
            yield lines
            lines = []
        lines.append(line)
    yield lines


def _declared(lines: list[str]) -> tuple[Kind, Object]:
    what, place, *more = lines[0].split()
    said = dict(zip(more[::2], more[1::2], strict=True))
    namespace, _, name = place.rpartition("/")
    metadata: Object = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {_AUTOUPDATE: "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    if what == "bind":
        role = {"apiGroup": _GROUP, "kind": "Role" if namespace else "ClusterRole", "name": said.get("to", name)}
        subjects = [_subject(*line.split()) for line in lines[1:]]
        binding = {"metadata": metadata, "roleRef": role, "subjects": subjects}
        return (ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS), binding
    if "for" in said:
        metadata["labels"][f"{_AGGREGATE}{said['for']}"] = "true"
    obj: Object = {"metadata": metadata, "rules": [_rule(line.strip()) for line in lines[1:]]}
    if "gathers" in said:
        selector = {"matchLabels": {f"{_AGGREGATE}{said['gathers']}": "true"}}
        obj["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return (ROLES if namespace else CLUSTER_ROLES), obj


def _subject(kind: str, name: str) -> Object:
    if kind == "account":
        namespace, _, account = name.partition("/")
        return {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return {"apiGroup": _GROUP, "kind": kind.capitalize(), "name": name}


def _rule(line: str) -> Object:
    verbs, _, rest = line.partition(" ")
    if rest.startswith("at "):
        return {"verbs": _verbs(verbs), "nonResourceURLs": rest.split()[1:]}
    groups, _, what = rest.partition(": ")
    resources, _, names = what.partition(" named ")
    rule: Object = {
        "verbs": _verbs(verbs),
        "apiGroups": ["" if group == "core" else group for group in groups.split(",")],
        "resources": resources.split(),
    }
    return rule | {"resourceNames": names.split()} if names else rule


def _verbs(text: str) -> list[str]:
    groups = {"read": _READ, "write": _WRITE}
    return [verb for word in text.split(",") for verb in groups.get(word, (word,))]
