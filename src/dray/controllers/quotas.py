"""Quota usage: the status of every ResourceQuota tells what its namespace has in use.

Where Dray stands in for kube-controller-manager, everything is counted. Beside it, only devices are: their names, which always
mean the same devices, are kept equal (KEP-5004), and every other name is left to Kubernetes.

Always true: what is written equals a count of the objects that are known; a difference is written only after it lasted a moment,
because admission shows a charge before the watch shows the object that is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dray.api.core import ResourceQuota
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, Kind
from dray.api.quantity import quantities
from dray.api.quota_names import REQUESTS
from dray.cluster.port import Change, Event, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.quota.account import Account
from dray.quota.devices import Served
from dray.quota.names import DEVICES, IMPLICIT, Amounts, is_countable

# Another API server admits by the status that is written here: there, a difference must last longer to be believed.
PATIENCE: Final = 1.0
PATIENCE_BESIDE: Final = 5.0
# However often the quota changes meanwhile, a difference waits no more than so many times the patience.
LONGEST: Final = 10


class Quotas(Keyed):
    """The decider. Keys are ``namespace/name`` of quotas. ``counted`` are the kinds whose objects quotas can count; without
    any, only devices are looked after. ``embedded``: Dray's own API server admits, and charges devices when pods are made."""

    name = "quotas"
    kinds: Sequence[Kind] = (RESOURCE_QUOTAS, DEVICE_CLASSES, PODS, RESOURCE_CLAIMS)

    def __init__(self, world: World, gates: Gates, counted: Sequence[Kind], *, embedded: bool) -> None:
        super().__init__(world)
        self._whole = bool(counted)
        self._counted = tuple(kind for kind in counted if kind.namespaced) if counted else (PODS, RESOURCE_CLAIMS)
        self.kinds = tuple(dict.fromkeys((*Quotas.kinds, *self._counted)))
        self._embedded = embedded
        self._patience = PATIENCE if embedded else PATIENCE_BESIDE
        self._extended = gates("DRAExtendedResource")
        self._served = self._serving()
        self._quotas = world.index(RESOURCE_QUOTAS, lambda found: (found.metadata.namespace,))
        self._accounts: dict[str, Account] = {}
        self._differs: dict[str, float] = {}
        self._changed: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------------------- changes

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Change):
            self._enter(event, now)
        super().observe(event, now)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == DEVICE_CLASSES:
            return tuple(self.world.all(RESOURCE_QUOTAS))
        if change.kind == RESOURCE_QUOTAS:
            return (change.object.key, *self._quotas[change.object.metadata.namespace])
        return tuple(self._quotas[change.object.metadata.namespace])

    def _enter(self, change: Change, now: float) -> None:
        kind, found = change.kind, change.object
        if kind == RESOURCE_QUOTAS:
            self._changed[found.key] = now
        if kind == DEVICE_CLASSES and (served := self._serving()) != self._served:
            self._served = served
            self._accounts.clear()
        account = self._accounts.get(found.metadata.namespace)
        if account is None or kind not in self._counted:
            return
        known = self.world.get(kind, found.key)
        if known is None:
            account.remove(kind.resource, found.key, now)
        else:
            account.put(kind.resource, known, now)

    def _serving(self) -> Served:
        return Served.by(self.world.all(DEVICE_CLASSES).values()) if self._extended else Served()

    # ------------------------------------------------------------------------------------------------------ decisions

    def decide(self, key: str, now: float) -> list[Write]:
        quota: ResourceQuota | None = self.world.get(RESOURCE_QUOTAS, key)
        if quota is None:
            self.forget(key)
            return []
        account = self._account(quota.metadata.namespace, now)
        if (end := account.next_end()) is not None:
            self.look_at(key, end + 1.0)
        wanted = self._wanted(quota, account)
        if wanted is None:
            self._differs.pop(key, None)
            return []
        if quota.status.hard and now < (due := self._due(key, now)):
            self.look_at(key, due)
            return []
        namespace, name, version = quota.metadata.namespace, quota.metadata.name, quota.metadata.resource_version
        body = {"status": wanted}
        return [
            Write("patch", RESOURCE_QUOTAS, namespace, name, body, subresource="status", uid=quota.uid, resource_version=version)
        ]

    def forget(self, key: str) -> None:
        super().forget(key)
        self._differs.pop(key, None)
        self._changed.pop(key, None)
        namespace = key.partition("/")[0]
        if not self._quotas[namespace]:
            self._accounts.pop(namespace, None)

    def _due(self, key: str, now: float) -> float:
        since = self._differs.setdefault(key, now)
        return min(max(since, self._changed.get(key, since)) + self._patience, since + LONGEST * self._patience)

    def _wanted(self, quota: ResourceQuota, account: Account) -> dict[str, Any] | None:
        """What the status must change to; None if it is right."""
        used, shown = account.used(quota.metadata.name), quantities(quota.status.used)
        if not self._whole:
            mine = {name: amount for name, amount in used.items() if name in quota.status.hard and self._is_device(name)}
            wrong = {name: amount for name, amount in mine.items() if shown.get(name) != amount}
            return {"used": _texts(wrong)} if wrong else None
        hard = quantities(quota.spec.hard)
        # Kinds that are defined while the server runs are counted by its admission alone.
        used |= {name: amount for name, amount in shown.items() if name in hard and name not in used}
        if used == shown and hard == quantities(quota.status.hard):
            return None
        return {"hard": _replacing(quota.status.hard, _texts(hard)), "used": _replacing(quota.status.used, _texts(used))}

    def _is_device(self, name: str) -> bool:
        return name.endswith(DEVICES) or name.startswith(IMPLICIT) or name.removeprefix(REQUESTS) in self._served.classes

    # ------------------------------------------------------------------------------------------------------- accounts

    def _account(self, namespace: str, now: float) -> Account:
        if namespace not in self._accounts:
            self._open_accounts(now)
        account = self._accounts[namespace]
        account.advance(now)
        quotas = (self.world.get(RESOURCE_QUOTAS, key) for key in self._quotas[namespace])
        account.follow({quota.metadata.name: quota.spec for quota in quotas})
        return account

    def _open_accounts(self, now: float) -> None:
        """All that are missing, in one look at the objects."""
        countable = self._countable()
        missing = [namespace for namespace in self._quotas.values() if namespace not in self._accounts]
        opened = {each: Account(self._served, countable, at_once=self._embedded) for each in missing}
        for kind in self._counted:
            for found in self.world.all(kind).values():
                account = opened.get(found.metadata.namespace)
                if account is not None:
                    account.put(kind.resource, found, now)
        self._accounts |= opened

    def _countable(self) -> Callable[[str], bool]:
        resources = frozenset(kind.resource for kind in self._counted)
        return lambda name: is_countable(name, resources)


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _replacing(old: dict[str, Any], new: dict[str, str]) -> dict[str, str | None]:
    """A merge patch that leaves nothing of the old names."""
    return {**dict.fromkeys(old.keys() - new.keys()), **new}
