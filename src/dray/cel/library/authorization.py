"""Questions to the authorizer: ``authorizer.group("").resource("pods").namespace("a").check("get").allowed()``.

Only admission gives expressions an authorizer. Who it asks about, and whom it asks, is given with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from dray.api.names import label, subdomain
from dray.cel.errors import Failure
from dray.cel.values import register_name


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """``decide(who, verb, question)`` answers; ``account(namespace, name)`` is the ``who`` of a service account."""

    who: Any
    decide: Callable[[Any, str, PathCheck | ResourceCheck], Decision]
    account: Callable[[str, str], Any]


@dataclass(frozen=True, slots=True)
class PathCheck:
    authorizer: Authorizer
    path: str


@dataclass(frozen=True, slots=True)
class GroupCheck:
    authorizer: Authorizer
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    authorizer: Authorizer
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


for _kind in (Authorizer, PathCheck, GroupCheck, ResourceCheck, Decision):
    register_name(_kind, f"kubernetes.authorization.{_kind.__name__}")


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise Failure("path must not be empty")
    return PathCheck(authorizer, path)


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if subdomain(name):
        raise Failure("Invalid service account name")
    if label(namespace):
        raise Failure("Invalid service account namespace")
    return replace(authorizer, who=authorizer.account(namespace, name))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise Failure("resource must not be empty")
    return ResourceCheck(check.authorizer, check.group, resource)


def _check(check: PathCheck | ResourceCheck, verb: str) -> Decision:
    return check.authorizer.decide(check.authorizer.who, verb, check)


def _narrowed(check: ResourceCheck, selector: str) -> ResourceCheck:
    """RBAC does not look at selectors."""
    return check


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("path", "authorizer_path", "authorizer.(string) -> pathCheck", _path),
    ("group", "authorizer_group", "authorizer.(string) -> groupCheck", GroupCheck),
    ("serviceAccount", "authorizer_serviceaccount", "authorizer.(string, string) -> authorizer", _service_account),
    ("resource", "groupcheck_resource", "groupCheck.(string) -> resourceCheck", _resource),
    (
        "subresource",
        "resourcecheck_subresource",
        "resourceCheck.(string) -> resourceCheck",
        lambda check, value: replace(check, subresource=value),
    ),
    (
        "namespace",
        "resourcecheck_namespace",
        "resourceCheck.(string) -> resourceCheck",
        lambda check, value: replace(check, namespace=value),
    ),
    ("name", "resourcecheck_name", "resourceCheck.(string) -> resourceCheck", lambda check, value: replace(check, name=value)),
    ("fieldSelector", "authorizer_fieldselector", "resourceCheck.(string) -> resourceCheck", _narrowed),
    ("labelSelector", "authorizer_labelselector", "resourceCheck.(string) -> resourceCheck", _narrowed),
    ("check", "pathcheck_check", "pathCheck.(string) -> decision", _check),
    ("check", "resourcecheck_check", "resourceCheck.(string) -> decision", _check),
    ("errored", "decision_errored", "decision.() -> bool", lambda decision: bool(decision.error)),
    ("error", "decision_error", "decision.() -> string", lambda decision: decision.error),
    ("allowed", "decision_allowed", "decision.() -> bool", lambda decision: decision.allowed),
    ("reason", "decision_reason", "decision.() -> string", lambda decision: decision.reason),
]
