"""Questions about who somebody is and what they may do: the review kinds, which are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dray.api.kinds import Kind
from dray.api.validation.errors import FieldError
from dray.apiserver.authentication.users import User
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.authorization.policy import Policy
from dray.apiserver.errors import bad_request, invalid

Object = dict[str, Any]
# A token and the audiences that it must be for -> whose it is and for which of them, or why it is nobody's.
Tokens = Callable[[str, tuple[str, ...]], tuple[User, tuple[str, ...]] | str]

_ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


class Reviews:
    def __init__(self, policy: Policy, tokens: Tokens) -> None:
        self._policy, self._tokens = policy, tokens

    def answer(self, kind: Kind, namespace: str, review: Object, user: User) -> Object:
        """The review with its status filled in."""
        spec = review.get("spec") or {}
        review.setdefault("metadata", {})
        if kind.kind == "LocalSubjectAccessReview" and not review["metadata"].get("namespace"):
            review["metadata"]["namespace"] = namespace
        if kind.kind == "SelfSubjectReview":
            review["status"] = {"userInfo": user.info}
        elif kind.kind == "TokenReview":
            review["status"] = self._token(spec)
        elif kind.kind == "SelfSubjectRulesReview":
            review["status"] = self._rules(spec, user)
        else:
            problems = list(_problems(kind.kind, review, spec))
            if problems:
                raise invalid(kind, "", problems)
            review["status"] = self._access(spec, user if kind.kind == "SelfSubjectAccessReview" else _named(spec))
        return review

    def _token(self, spec: Object) -> Object:
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        found = self._tokens(str(spec["token"]), tuple(spec.get("audiences") or ()))
        if isinstance(found, str):
            return {"user": {}, "error": found}
        user, audiences = found
        return {"authenticated": True, "user": user.info, "audiences": list(audiences)}

    def _access(self, spec: Object, user: User) -> Object:
        allowed, reason = self._policy.allowed(user, _attributes(spec))
        return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}

    def _rules(self, spec: Object, user: User) -> Object:
        if not spec.get("namespace"):
            raise bad_request("no namespace on request")
        rights = self._policy.rights(user, str(spec["namespace"]))
        status: Object = {"resourceRules": [], "nonResourceRules": [], "incomplete": False}
        for rule in rights.rules:
            if rule.resources:
                shown: Object = {"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources}
                status["resourceRules"].append(shown | ({"resourceNames": rule.resource_names} if rule.resource_names else {}))
            if rule.non_resource_urls:
                status["nonResourceRules"].append({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls})
        if rights.problems:
            status["evaluationError"] = ", ".join(rights.problems)
        return status


def _named(spec: Object) -> User:
    extra = tuple((key.lower(), tuple(values)) for key, values in (spec.get("extra") or {}).items())
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _attributes(spec: Object) -> Attributes:
    about = spec.get("resourceAttributes")
    if about is None:
        about = spec["nonResourceAttributes"]
        return Attributes(about.get("verb") or "", path=about.get("path") or "")
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(about.get(field) or "" for field in fields))


def _problems(kind: str, review: Object, spec: Object) -> Iterable[FieldError]:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (about is None) == (path is None):
        yield FieldError("spec", "Invalid", path, _ONE_OF)
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        yield FieldError("spec.user", "Invalid", spec.get("user") or "", "at least one of user or group must be specified")
    metadata = {field: value for field, value in review["metadata"].items() if value and field != "managedFields"}
    if kind == "LocalSubjectAccessReview":
        namespace = metadata.pop("namespace", "")
        if about is not None and (about.get("namespace") or "") != namespace:
            given = about.get("namespace") or ""
            yield FieldError("spec.resourceAttributes.namespace", "Invalid", given, "must match metadata.namespace")
        if path is not None:
            yield FieldError("spec.nonResourceAttributes", "Invalid", path, "disallowed on this kind of request")
    if metadata:
        empty = "must be empty except for namespace" if kind == "LocalSubjectAccessReview" else "must be empty"
        yield FieldError("metadata", "Invalid", metadata, empty)
