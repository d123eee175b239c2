"""Namespaces: a new one gets its default service account; one that is deleted is emptied, pods first, and then let go. While
something holds it up, its conditions say what.

Always true: a namespace is finalized only when no object of a watched kind is left in it and a moment has passed in which a
late watch could still have shown one; objects that turn up in a namespace that no longer exists are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dray.api.core import Namespace
from dray.api.kinds import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Kind
from dray.api.meta import Object
from dray.api.times import format_time, parse_time
from dray.cluster.port import Change, Conflict, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

SETTLE_SECONDS: Final = 1.5
EXPLAIN_SECONDS: Final = 2.0
STRAY_SECONDS: Final = 30.0
ROOT_CA: Final = "kube-root-ca.crt"


class Namespaces(Keyed):
    """The decider. Keys are names of namespaces. ``certificate`` is published in each one as ``kube-root-ca.crt``; without
    one, that object is somebody else's."""

    name = "namespaces"

    def __init__(self, world: World, kinds: Sequence[Kind], certificate: str = "") -> None:
        super().__init__(world)
        self._contents = tuple(kind for kind in kinds if kind.namespaced)
        self.kinds = (NAMESPACES, *self._contents)
        self._certificate = certificate
        self._inside = {kind: world.index(kind, lambda found: (found.metadata.namespace,)) for kind in self._contents}
        self._emptied: dict[str, float] = {}
        self._rewritten: set[str] = set()

    def follow(self, kind: Kind, api_versions: Sequence[str]) -> None:
        """One more kind whose objects go with their namespace."""
        if kind.namespaced and kind not in self._inside:
            self.kinds = (*self.kinds, kind)
            self._inside[kind] = self.world.index(kind, lambda found: (found.metadata.namespace,))

    def unfollow(self, kind: Kind) -> None:
        self.kinds = tuple(each for each in self.kinds if each != kind)
        self._inside.pop(kind, None)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NAMESPACES:
            return [change.object.metadata.name]
        name = change.object.metadata.namespace
        namespace = self.world.get(NAMESPACES, name)
        quiet = namespace is not None and namespace.metadata.deletion_timestamp is None
        missed = change.new is None and change.kind in (SERVICE_ACCOUNTS, CONFIG_MAPS)
        if self._certificate and change.kind == CONFIG_MAPS and change.object.metadata.name == ROOT_CA and change.old is not None:
            self._rewritten.add(name)
            return [name]
        return [] if quiet and not missed else [name]

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if isinstance(outcome.error, Conflict) and outcome.error.reason == "AlreadyExists":
            self.look_at(key, now + 5.0)

    def decide(self, key: str, now: float) -> list[Write]:
        namespace: Namespace | None = self.world.get(NAMESPACES, key)
        if namespace is None:
            return self._strays(key, now)
        if namespace.metadata.deletion_timestamp is None:
            return self._furnish(key)
        left = list(self._left(key))
        if left:
            self._emptied.pop(key, None)
            first = [(kind, found) for kind, found in left if kind == PODS] or left
            leaving = [_delete(kind, found) for kind, found in first if found.metadata.deletion_timestamp is None]
            return leaving or self._explain(namespace, left, now)
        return self._finalize(namespace, now)

    def _explain(self, namespace: Namespace, left: list[tuple[Kind, Object]], now: float) -> list[Write]:
        """What is left has been deleted and does not go: the conditions say what it is and what it waits for."""
        began = parse_time(namespace.metadata.deletion_timestamp or "1970-01-01T00:00:00Z")
        if now < began + EXPLAIN_SECONDS:
            self.look_at(namespace.metadata.name, began + EXPLAIN_SECONDS)
            return []
        wanted = _conditions(left)
        known = {c.type: (c.status, c.reason, c.message) for c in namespace.status.conditions}
        if known == wanted:
            return []
        stamp = format_time(now)
        conditions = [
            {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}
            for type, (status, reason, message) in wanted.items()
        ]
        name, body = namespace.metadata.name, {"status": {"conditions": conditions}}
        return [Write("patch", NAMESPACES, name=name, body=body, subresource="status", uid=namespace.uid)]

    def _furnish(self, name: str) -> list[Write]:
        writes = []
        if SERVICE_ACCOUNTS in self._inside and self.world.get(SERVICE_ACCOUNTS, f"{name}/default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
            writes.append(Write("create", SERVICE_ACCOUNTS, name, "default", account))
        if not self._certificate:
            return writes
        if self.world.get(CONFIG_MAPS, f"{name}/{ROOT_CA}") is None:
            data = {"ca.crt": self._certificate}
            published = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOT_CA, "namespace": name}, "data": data}
            writes.append(Write("create", CONFIG_MAPS, name, ROOT_CA, published))
        elif name in self._rewritten:  # what it says now is not known here; writing what it says already changes nothing
            writes.append(Write("patch", CONFIG_MAPS, name, ROOT_CA, {"data": {"ca.crt": self._certificate}}))
        self._rewritten.discard(name)
        return writes

    def _finalize(self, namespace: Namespace, now: float) -> list[Write]:
        name = namespace.metadata.name
        began = parse_time(namespace.metadata.deletion_timestamp or "1970-01-01T00:00:00Z")
        settled = max(self._emptied.setdefault(name, now), began) + SETTLE_SECONDS
        if now < settled:
            self.look_at(name, settled)
            return []
        if not all(self.world.is_listed(kind) for kind in self._inside):
            self.look_at(name, now + SETTLE_SECONDS)
            return []
        if "kubernetes" not in (namespace.spec.get("finalizers") or ()):
            return []
        kept = [each for each in namespace.spec["finalizers"] if each != "kubernetes"]
        metadata = {"name": name, "uid": namespace.uid, "resourceVersion": namespace.metadata.resource_version}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {"finalizers": kept}}
        return [Write("update", NAMESPACES, name=name, body=body, subresource="finalize")]

    def _strays(self, name: str, now: float) -> list[Write]:
        """What was left behind in a namespace that is gone, or belongs to one that the watch has not shown yet."""
        left = list(self._left(name))
        if not left:
            self.forget(name)
            self._emptied.pop(name, None)
            return []
        since = self._emptied.setdefault(name, now)
        if now < since + STRAY_SECONDS:
            self.look_at(name, since + STRAY_SECONDS)
            return []
        return [_delete(kind, found) for kind, found in left if found.metadata.deletion_timestamp is None]

    def _left(self, name: str) -> Iterable[tuple[Kind, Object]]:
        for kind, index in self._inside.items():
            for key in index[name]:
                yield kind, self.world.get(kind, key)


def _conditions(left: list[tuple[Kind, Object]]) -> dict[str, tuple[str, str, str]]:
    counts = Counter(f"{kind.plural}.{kind.group}" for kind, _ in left)
    held = Counter(finalizer for _, found in left for finalizer in found.metadata.finalizers)
    remaining = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(counts.items()))
    waiting = ", ".join(f"{finalizer} in {count} resource instances" for finalizer, count in sorted(held.items()))
    return {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("True", "SomeResourcesRemain", f"Some resources are remaining: {remaining}"),
        "NamespaceFinalizersRemaining": (
            ("True", "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {waiting}")
            if held
            else ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished")
        ),
    }


def _delete(kind: Kind, found: Object) -> Write:
    body = {"propagationPolicy": "Background"}
    return Write("delete", kind, found.metadata.namespace, found.metadata.name, body, uid=found.uid)
