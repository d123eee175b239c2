"""Roles and their bindings: what RBAC accepts."""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.validation.errors import Errors, immutable, invalid, not_supported, required
from dray.api.validation.selectors import label_selector

Object = dict[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"


def path_segment(name: str) -> str:
    """What is wrong with a name that is only a part of a path, as those of roles are."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{bad}'" for bad in "/%" if bad in name), "")


def role(obj: Object) -> Errors:
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(rule, f"rules[{index}]", namespaced=True)


def cluster_role(obj: Object) -> Errors:
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(rule, f"rules[{index}]", namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(selectors):
        yield from label_selector(selector, f"{path}[{index}]")


def _rule(rule: Object, path: str, *, namespaced: bool) -> Errors:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            yield invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", urls, message)
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def role_binding(obj: Object) -> Errors:
    yield from _binding(obj, ("ClusterRole", "Role"), namespaced=True)


def cluster_role_binding(obj: Object) -> Errors:
    yield from _binding(obj, ("ClusterRole",), namespaced=False)


def role_binding_update(obj: Object, old: Object) -> Errors:
    yield from role_binding(obj)
    yield from _same_role(obj, old)


def cluster_role_binding_update(obj: Object, old: Object) -> Errors:
    yield from cluster_role_binding(obj)
    yield from _same_role(obj, old)


def _same_role(obj: Object, old: Object) -> Errors:
    yield from immutable(obj.get("roleRef"), old.get("roleRef"), "roleRef")


def _binding(obj: Object, kinds: tuple[str, ...], *, namespaced: bool) -> Errors:
    reference = obj.get("roleRef") or {}
    if reference.get("apiGroup") != GROUP:
        yield not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,))
    if reference.get("kind") not in kinds:
        yield not_supported("roleRef.kind", reference.get("kind") or "", kinds)
    name = reference.get("name") or ""
    if not name:
        yield required("roleRef.name")
    elif problem := path_segment(name):
        yield invalid("roleRef.name", name, problem)
    for index, subject in enumerate(obj.get("subjects") or ()):
        yield from _subject(subject, f"subjects[{index}]", namespaced=namespaced)


def _subject(subject: Object, path: str, *, namespaced: bool) -> Errors:
    name, group, kind = subject.get("name") or "", subject.get("apiGroup") or "", subject.get("kind") or ""
    if not name:
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        yield from (invalid(f"{path}.name", name, problem) for problem in (names.subdomain(name) if name else ()))
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != GROUP:
            yield not_supported(f"{path}.apiGroup", group, (GROUP,))
    else:
        yield not_supported(f"{path}.kind", kind, ("Group", "ServiceAccount", "User"))
