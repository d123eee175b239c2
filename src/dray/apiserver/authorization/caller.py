"""Who makes a request and what it asks for, for writes that need more than the right to write: roles, bindings, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from dray.api.access import PolicyRule
from dray.apiserver.authentication.users import User
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.authorization.covering import missing
from dray.apiserver.authorization.policy import Policy


class Caller:
    """``asking`` says what the request is about, if anybody wants to know: for most writes nobody does."""

    __slots__ = ("_asked", "_asking", "_policy", "user")

    def __init__(self, policy: Policy, user: User, asking: Callable[[], Attributes]) -> None:
        self._policy, self.user, self._asking = policy, user, asking
        self._asked: Attributes | None = None

    @property
    def asked(self) -> Attributes:
        if self._asked is None:
            self._asked = self._asking()
        return self._asked

    def may(self, wanted: Attributes) -> bool:
        return self._policy.allowed(self.user, wanted)[0]

    def require_create(self) -> None:
        """An update or a patch that makes an object needs the right to create it, too."""
        if not self.user.privileged and self.asked.verb != "create":
            self.require(msgspec.structs.replace(self.asked, verb="create"))

    def require(self, wanted: Attributes) -> None:
        self._policy.require(self.user, wanted)

    def lacks(self, rules: Iterable[PolicyRule]) -> list[PolicyRule]:
        """What the caller may not do of these, where the request is made."""
        return missing(self._policy.rights(self.user, self.asked.namespace).rules, rules)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the rights of the caller may be incomplete: roles that are bound and do not exist."""
        return self._policy.rights(self.user, self.asked.namespace).problems

    def rules_of(self, kind: str, namespace: str, name: str) -> list[PolicyRule] | None:
        return self._policy.rules_of(kind, namespace, name)
