"""Speaking for somebody else: the Impersonate- headers, and whether the caller may.

As upstream, the constrained ways are tried first (speak for a node, a service account, somebody, and only for what may be done
that way), then the verb ``impersonate``, which allows everything that the other may do. The first refusal is the one told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote

import msgspec

from dray.api.names import qualified_name, subdomain
from dray.apiserver.authentication.users import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    User,
    account_groups,
    account_of,
)
from dray.apiserver.authorization.attributes import Attributes, forbidden
from dray.apiserver.authorization.claims import NODE_NAME
from dray.apiserver.authorization.policy import Policy
from dray.apiserver.errors import ApiError, bad_request

GROUP: Final = "authentication.k8s.io"
NODES: Final = "system:nodes"
_NODE: Final = "system:node:"
_EXTRA: Final = "impersonate-extra-"
_MANY: Final = 4

Header = tuple[str, str]


def wanted_user(headers: Iterable[Header]) -> User | None:
    """The user that the headers (names in lower case) ask for; None when they ask for none."""
    name, uid, groups = "", "", list[str]()
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        if header == "impersonate-user":
            name = name or value
        elif header == "impersonate-uid":
            uid = uid or value
        elif header == "impersonate-group":
            groups.append(value)
        elif header.startswith(_EXTRA):
            extra.setdefault(unquote(header[len(_EXTRA) :]), []).append(value)
    if name:
        return User(name, tuple(groups), uid, tuple((key, tuple(values)) for key, values in extra.items()))
    if uid or groups or extra:
        raise bad_request(f"requested groups {groups}, uid {uid!r}, extra {sorted(extra)} without impersonating a user name")
    return None


def impersonated(policy: Policy, caller: User, wanted: User, asked: Attributes) -> User:
    """The user that the request is made as. Raises 403 when the caller may not."""
    first: ApiError | None = None
    for mode, applies in _MODES:
        if not applies(wanted, caller):
            continue
        try:
            return _Attempt(policy, caller, mode).user(wanted, asked)
        except ApiError as error:
            first = first or error
    assert first is not None, "the last mode applies to everybody"
    raise first


class _Attempt:
    """One way of doing it. ``mode`` is empty for the unconstrained way."""

    def __init__(self, policy: Policy, caller: User, mode: str) -> None:
        self._policy, self._caller, self._mode = policy, caller, mode
        self._verb = f"impersonate:{mode}" if mode else "impersonate"

    def user(self, wanted: User, asked: Attributes) -> User:
        if self._mode:
            verb = f"impersonate-on:{self._mode}:{asked.verb}"
            self._policy.require(self._caller, msgspec.structs.replace(asked, verb=verb))
        groups = self._name(wanted)
        if wanted.uid:
            self._may("uids", wanted.uid)
        self._groups(wanted.groups)
        self._extra(wanted)
        return msgspec.structs.replace(wanted, groups=_completed(wanted.name, groups))

    def _name(self, wanted: User) -> tuple[str, ...]:
        """Checks the name; the groups that go with it."""
        account, node = account_of(wanted.name), _node_of(wanted.name)
        if account is not None:
            self._may("serviceaccounts", account[1], account[0], self._core)
            return wanted.groups or account_groups(account[0])
        if self._mode and node:
            self._may("nodes", "*" if self._mode == "associated-node" else node)
            return (NODES,)
        self._may("users", wanted.name, "", self._core)
        return wanted.groups

    @property
    def _core(self) -> str:
        """Names and groups were resources of the core group before the constrained ways came."""
        return GROUP if self._mode else ""

    def _may(self, resource: str, name: str, namespace: str = "", group: str = GROUP, subresource: str = "") -> None:
        self._policy.require(self._caller, Attributes(self._verb, group, resource, subresource, namespace, name))

    def _groups(self, groups: tuple[str, ...]) -> None:
        if self._mode and ("" in groups or MASTERS in groups):
            bad = MASTERS if MASTERS in groups else ""
            why = f"impersonating the {bad or 'empty string'} group is not allowed"
            raise forbidden(self._caller, Attributes(self._verb, self._core, "groups", name=bad), why)
        if self._mode and len(groups) >= _MANY and self._has("groups", "*"):
            return
        for group in groups:
            self._may("groups", group, "", self._core)

    def _extra(self, wanted: User) -> None:
        values = [(key, value) for key, listed in wanted.extra for value in listed]
        if self._mode and any(not value or qualified_name(key) for key, value in values):
            raise forbidden(self._caller, Attributes(self._verb, GROUP, "userextras"), "impersonating this extra is not allowed")
        if self._mode and len(values) >= _MANY and self._has("userextras", "*", "*"):
            return
        for key, value in values:
            self._may("userextras", value, subresource=key)

    def _has(self, resource: str, name: str, subresource: str = "") -> bool:
        return self._policy.allowed(self._caller, Attributes(self._verb, GROUP, resource, subresource, name=name))[0]


def _completed(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Everybody is authenticated or not, and says so."""
    if name == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    return groups if AUTHENTICATED in groups or UNAUTHENTICATED in groups else (*groups, AUTHENTICATED)


def _node_of(name: str) -> str:
    node = name[len(_NODE) :] if name.startswith(_NODE) else ""
    return node if node and not subdomain(node) else ""


def _only_named(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _own_node(wanted: User, caller: User) -> bool:
    node = _node_of(wanted.name)
    return bool(node) and _only_named(wanted) and account_of(caller.name) is not None and caller.values(NODE_NAME) == (node,)


def _any_node(wanted: User, caller: User) -> bool:
    return bool(_node_of(wanted.name)) and _only_named(wanted)


def _account(wanted: User, caller: User) -> bool:
    return account_of(wanted.name) is not None and _only_named(wanted)


def _somebody(wanted: User, caller: User) -> bool:
    return account_of(wanted.name) is None and not _node_of(wanted.name)


_MODES: Final[tuple[tuple[str, Callable[[User, User], bool]], ...]] = (
    ("associated-node", _own_node),
    ("arbitrary-node", _any_node),
    ("serviceaccount", _account),
    ("user-info", _somebody),
    ("", lambda wanted, caller: True),
)
