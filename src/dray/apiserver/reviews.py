"""Who is asking, and what they may do: the review kinds that ``kubectl auth`` and webhooks' clients create.

There are two identities: the administrator, who may do everything, and the reader, who may read everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

READ_VERBS: Final = ("get", "list", "watch")


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...]
    writes: bool

    def may(self, verb: str) -> bool:
        return self.writes or verb in READ_VERBS

    @property
    def info(self) -> dict[str, Any]:
        return {"username": self.name, "groups": list(self.groups)}


ADMIN: Final = User("dray-admin", ("system:masters", "system:authenticated"), True)
READER: Final = User("dray-reader", ("dray:readers", "system:authenticated"), False)
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",), False)


def answer(kind: str, review: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    """The review with its status filled in."""
    spec = review.get("spec") or {}
    review["status"] = _STATUS[kind](spec, user, who)
    review.setdefault("metadata", {})
    return review


def _self(spec: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    return {"userInfo": user.info}


def _token(spec: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    found = who(str(spec.get("token") or ""))
    return {"authenticated": True, "user": found.info} if found else {"authenticated": False, "error": "unknown token"}


def _access(spec: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    return _allowed(spec, user)


def _access_of(spec: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    groups = set(spec.get("groups") or ())
    if spec.get("user") == ADMIN.name or "system:masters" in groups:
        return _allowed(spec, ADMIN)
    if spec.get("user") == READER.name:
        return _allowed(spec, READER)
    return {"allowed": False, "reason": f"no user {spec.get('user', '')!r}"}


def _allowed(spec: dict[str, Any], user: User) -> dict[str, Any]:
    attributes = spec.get("resourceAttributes") or spec.get("nonResourceAttributes") or {}
    allowed = user.may(str(attributes.get("verb") or ""))
    return {"allowed": allowed, "reason": "" if allowed else f"{user.name} may only read"}


def _rules(spec: dict[str, Any], user: User, who: Callable[[str], User | None]) -> dict[str, Any]:
    verbs = ["*"] if user.writes else list(READ_VERBS)
    return {
        "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": verbs, "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


_STATUS: Final = {
    "SelfSubjectReview": _self,
    "TokenReview": _token,
    "SelfSubjectAccessReview": _access,
    "SubjectAccessReview": _access_of,
    "LocalSubjectAccessReview": _access_of,
    "SelfSubjectRulesReview": _rules,
}
