"""The roles and bindings that are stored, ready to be asked who may do what.

Always true: the answer is that of what is durable now; a change of one role or binding costs what that object is large, and
rights that were made before it are made again when next asked for. What is remembered of users is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.access import ClusterRole, PolicyRule, Role, RoleBinding, Subject
from dray.api.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from dray.api.meta import decode
from dray.apiserver.authentication.users import User, account_name
from dray.apiserver.authorization.attributes import Attributes, forbidden, quoted
from dray.apiserver.authorization.rights import Grant, Granted, Rights
from dray.apiserver.store import Delivered, Store, Watcher

REMEMBERED: Final = 4096

Who = tuple[str, str]  # ("User", name) or ("Group", name); a service account is the user that it is


class Bound:
    """One binding: to whom it applies, and which role it gives."""

    __slots__ = ("kind", "name", "namespace", "role", "role_kind", "subjects")

    def __init__(self, binding: RoleBinding) -> None:
        self.namespace, self.name = binding.metadata.namespace, binding.metadata.name
        self.role_kind, self.role = binding.role_ref.kind, binding.role_ref.name
        self.kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        self.subjects: dict[Who, str] = {}
        for subject in binding.subjects:
            if (who := self._who(subject)) is not None:
                self.subjects.setdefault(who, self._described(subject))

    def _who(self, subject: Subject) -> Who | None:
        if subject.kind != "ServiceAccount":
            return (subject.kind, subject.name)
        namespace = subject.namespace or self.namespace
        return ("User", account_name(namespace, subject.name)) if namespace else None

    def _described(self, subject: Subject) -> str:
        if subject.kind != "ServiceAccount":
            return f"{subject.kind} {quoted(subject.name)}"
        return f"ServiceAccount {quoted(f'{subject.name}/{subject.namespace or self.namespace}')}"

    def source(self, who: Who) -> str:
        name = f"{self.name}/{self.namespace}" if self.namespace else self.name
        return f"{self.kind} {quoted(name)} of {self.role_kind} {quoted(self.role)} to {self.subjects[who]}"


class Policy:
    """Answers from the four tables of a store, which it follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: dict[str, Watcher] = {}
        self._stale: set[str] = set()
        self._roles: dict[str, tuple[Grant, ...]] = {}
        self._bindings: dict[str, Bound] = {}
        # namespace ("" for everywhere) -> whom -> keys of the bindings
        self._applying: dict[str, dict[Who, dict[str, None]]] = {}
        self._rights: dict[tuple[str, tuple[str, ...], str], Rights] = {}

    # --------------------------------------------------------------------------------------------------------- questions

    def allowed(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        """Whether, and why: the words that a SubjectAccessReview gives as its reason."""
        if user.privileged:
            return True, ""
        rights = self.rights(user, wanted.namespace)
        source = rights.source(wanted)
        if source is not None:
            return True, f"RBAC: allowed by {source}"
        return False, f"RBAC: {joined(rights.problems)}" if rights.problems else ""

    def require(self, user: User, wanted: Attributes) -> None:
        allowed, reason = self.allowed(user, wanted)
        if not allowed:
            raise forbidden(user, wanted, reason)

    def rights(self, user: User, namespace: str) -> Rights:
        """What a user may do in a namespace, or with "" only what holds everywhere."""
        self._refresh()
        where = namespace if namespace in self._applying else ""
        key = (user.name, user.groups, where)
        found = self._rights.get(key)
        if found is None:
            if len(self._rights) >= REMEMBERED:
                self._rights.clear()
            found = self._rights[key] = self._made(user, where)
        return found

    def rules_of(self, kind: str, namespace: str, name: str) -> list[PolicyRule] | None:
        """The rules of a role; None when there is no such role."""
        self._refresh()
        found = self._roles.get(_role_key(kind, namespace, name))
        return [grant.rule for grant in found] if found is not None else None

    # -------------------------------------------------------------------------------------------------------------- rights

    def _made(self, user: User, namespace: str) -> Rights:
        granted: list[Granted] = []
        problems: list[str] = []
        for scope in dict.fromkeys(("", namespace)):
            for bound, who in self._bound(user, scope):
                grants = self._roles.get(_role_key(bound.role_kind, bound.namespace, bound.role))
                if grants is None:
                    kind = "clusterrole" if bound.role_kind == "ClusterRole" else "role"
                    problems.append(f"{kind}.rbac.authorization.k8s.io {quoted(bound.role)} not found")
                    continue
                source = bound.source(who)
                granted.extend((grant, source) for grant in grants)
        return Rights(granted, tuple(dict.fromkeys(problems)))

    def _bound(self, user: User, scope: str) -> Iterable[tuple[Bound, Who]]:
        applying = self._applying.get(scope, {})
        found: dict[str, Who] = {}
        for who in (("User", user.name), *(("Group", group) for group in user.groups)):
            for key in applying.get(who, ()):
                found.setdefault(key, who)
        return ((self._bindings[key], found[key]) for key in sorted(found))

    # ----------------------------------------------------------------------------------------------------- following tables

    def _refresh(self) -> None:
        if not self._watchers:
            for kind in (CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
                self._follow(kind.resource)
        while self._stale:
            self._catch_up(self._stale.pop())

    def _follow(self, table: str) -> None:
        """From the start: everything that is stored, then every change."""
        found = self._store.table(table)
        watcher = self._watchers[table] = self._store.watch(found, "", None, self._store.published)
        watcher.on_change(lambda: self._stale.add(table))
        for _, entry in found.at(self._store.published):
            self._put(table, entry.raw)

    def _catch_up(self, table: str) -> None:
        watcher = self._watchers[table]
        self._rights.clear()
        if watcher.overflowed:
            self._start_again()
            return
        for change in watcher.take():
            self._changed(table, change)

    def _start_again(self) -> None:
        for watcher in self._watchers.values():
            self._store.unwatch(watcher)
        for kept in (self._watchers, self._stale, self._roles, self._bindings, self._applying):
            kept.clear()
        self._refresh()

    def _changed(self, table: str, change: Delivered) -> None:
        if change.type == "DELETED":
            self._remove(table, change.entry.raw)
        else:
            self._put(table, change.entry.raw)

    def _put(self, table: str, raw: bytes) -> None:
        if table == CLUSTER_ROLES.resource:
            role: Role = decode(ClusterRole, raw)
        elif table == ROLES.resource:
            role = decode(Role, raw)
        else:
            self._bind(decode(RoleBinding, raw))
            return
        self._roles[role.key] = tuple(map(Grant, role.rules))

    def _remove(self, table: str, raw: bytes) -> None:
        if table in (CLUSTER_ROLES.resource, ROLES.resource):
            self._roles.pop(decode(Role, raw).key, None)
        else:
            self._unbind(decode(RoleBinding, raw).key)

    def _bind(self, binding: RoleBinding) -> None:
        key = binding.key
        self._unbind(key)
        bound = self._bindings[key] = Bound(binding)
        applying = self._applying.setdefault(bound.namespace, {})
        for who in bound.subjects:
            applying.setdefault(who, {})[key] = None

    def _unbind(self, key: str) -> None:
        bound = self._bindings.pop(key, None)
        if bound is None:
            return
        applying = self._applying[bound.namespace]
        for who in bound.subjects:
            del applying[who][key]
            if not applying[who]:
                del applying[who]
        if not applying:
            del self._applying[bound.namespace]


def _role_key(kind: str, namespace: str, name: str) -> str:
    return name if kind == "ClusterRole" else f"{namespace}/{name}"


def joined(problems: tuple[str, ...]) -> str:
    """One message of several, as Go joins errors."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
