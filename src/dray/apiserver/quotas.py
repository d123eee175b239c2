"""Quota admission: no write may take a namespace beyond what its ResourceQuotas allow.

Always true: what is in use is counted from the stored objects themselves, never believed from a quota's status, so a status that
is late or was meddled with lets nobody in and keeps nobody out; a quota counts from the moment it is stored. The status of a
quota tells the new usage in the same instant in which an object that is charged appears or goes; what changes otherwise (pods
that finish, classes, quotas themselves) a controller tells.

Accounts are kept for namespaces that have quotas, from the store's own history: other namespaces cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.core import Pod, ResourceQuota
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_CLASSES, RESOURCE_QUOTAS, Kind
from dray.api.meta import decode
from dray.api.quantity import quantities
from dray.apiserver.errors import forbidden
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.store import Store, Table
from dray.quota.account import Account
from dray.quota.devices import Served
from dray.quota.names import ZERO, Amounts, is_countable, only, text
from dray.quota.pods import unspecified

Object = dict[str, Any]

# Kinds whose charge can change while they live. All others are charged when they are created.
_CHANGING: Final = frozenset({"pods", "services", "persistentvolumeclaims", "resourceclaims.resource.k8s.io"})


class Quotas:
    """``admit`` before a write, ``settle`` after it."""

    def __init__(self, registry: Registry, store: Store, gates: Gates) -> None:
        self._registry, self._store = registry, store
        self._extended = gates("DRAExtendedResource")
        self._table = store.table(RESOURCE_QUOTAS.resource)
        self._accounts: dict[str, Account] = {}
        self._served = Served()
        self._synced = self._reverted = 0
        self._known: tuple[Resource, ...] = ()
        self._tables: dict[Kind, Table] = {}

    def admit(self, resource: Resource, namespace: str, obj: Object, old: Object | None, now: float) -> bool:
        """Whether the write is charged to any quota. Raises if one does not allow it."""
        kind = resource.kind
        if not namespace or not self._table.keys or kind.plural == "events":
            return False
        if old is not None and (kind.resource not in _CHANGING or obj["metadata"].get("deletionTimestamp")):
            return False
        quotas = self._quotas(namespace)
        if not quotas:
            return False
        account = self._account(namespace, quotas, now)
        found = decode(kind.type, obj)
        if isinstance(found, Pod) and old is None:
            for name, quota in quotas.items():
                if account.concerns(name, found):
                    _specified(kind, name, quota, found)
        asked = account.asked(kind.resource, found, now)
        for name in sorted(asked):
            _within(kind, found.metadata.name, quotas[name], asked[name], account.used(name))
        return bool(asked)

    def settle(self, namespace: str, now: float) -> None:
        """Show in the status of the namespace's quotas what is in use now."""
        quotas = self._quotas(namespace) if namespace and self._table.keys else {}
        if not quotas:
            return
        account = self._account(namespace, quotas, now)
        for name, quota in quotas.items():
            used = account.used(name)
            if quantities(quota.status.used) != used or quantities(quota.status.hard) != quantities(quota.spec.hard):
                key = f"{namespace}/{name}"
                obj = self._table.entries[key].copy()
                shown = {each: str(amount) for each, amount in used.items()}
                obj["status"] = {"hard": dict(obj["spec"].get("hard") or {}), "used": shown}
                self._store.put(self._table, key, obj)

    # ------------------------------------------------------------------------------------------------------ accounts

    def _quotas(self, namespace: str) -> dict[str, ResourceQuota]:
        found = (decode(ResourceQuota, entry.raw) for _, entry in self._table.scan(f"{namespace}/"))
        return {quota.metadata.name: quota for quota in found}

    def _account(self, namespace: str, quotas: Mapping[str, ResourceQuota], now: float) -> Account:
        if self._store.reverted != self._reverted:
            self._reverted, self._synced = self._store.reverted, 0
            self._accounts.clear()
        self._follow_kinds()
        self._follow_classes()
        self._catch_up(now)
        account = self._accounts.get(namespace)
        if account is None:
            resources = frozenset(kind.resource for kind in self._tables)
            account = self._accounts[namespace] = Account(self._served, lambda name: is_countable(name, resources))
            for kind, table in self._tables.items():
                for _, entry in table.scan(f"{namespace}/"):
                    account.put(kind.resource, decode(kind.type, entry.raw), now)
        account.advance(now)
        account.follow({name: quota.spec for name, quota in quotas.items()})
        return account

    def _follow_kinds(self) -> None:
        if self._registry.resources is not self._known:
            self._known = self._registry.resources
            self._tables = {kind: self._of(kind) for kind in self._registry.owned if kind.namespaced}
            self._accounts.clear()

    def _follow_classes(self) -> None:
        classes = self._of(DEVICE_CLASSES)
        if not self._extended or (self._synced and _last(classes) <= self._synced):
            return
        served = Served.by(decode(DEVICE_CLASSES.type, entry.raw) for _, entry in classes.scan())  # type: ignore[misc]
        if served != self._served:
            self._served = served
            self._accounts.clear()

    def _catch_up(self, now: float) -> None:
        """Bring all accounts to what is stored now; if something was missed that is no longer remembered, they start anew."""
        changed = [(kind, table) for kind, table in self._tables.items() if _last(table) > self._synced]
        if any(table.compacted > self._synced for _, table in changed):
            self._accounts.clear()
        for kind, table in changed if self._accounts else ():
            for event in table.since(self._synced):
                account = self._accounts.get(event.key.partition("/")[0])
                if account is None:
                    continue
                if event.deleted:
                    account.remove(kind.resource, event.key, now)
                else:
                    account.put(kind.resource, decode(kind.type, event.entry.raw), now)
        self._synced = self._store.revision

    def _of(self, kind: Kind) -> Table:
        return self._store.table(self._registry.of(kind).storage)


def _last(table: Table) -> int:
    """The revision of the last change that is remembered; of one that is loaded, all of it."""
    return table.history[-1].revision if table.history else table.compacted


def _specified(kind: Kind, name: str, quota: ResourceQuota, pod: Pod) -> None:
    missing = unspecified(pod, quota.spec.hard)
    if missing:
        told = "; ".join(f"{each} for: {','.join(sorted(missing[each]))}" for each in sorted(missing))
        raise forbidden(kind, pod.metadata.name, f"failed quota: {name}: must specify {told}")


def _within(kind: Kind, name: str, quota: ResourceQuota, asked: Amounts, used: Amounts) -> None:
    hard = quantities(quota.spec.hard)
    over = [each for each, amount in asked.items() if used.get(each, ZERO) + amount > hard[each]]
    if over:
        told = f"requested: {text(only(asked, over))}, used: {text(only(used, over))}, limited: {text(only(hard, over))}"
        raise forbidden(kind, name, f"exceeded quota: {quota.metadata.name}, {told}")
