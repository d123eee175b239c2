"""What the API server tells of itself at ``/metrics``: how many objects there are, by kind, and which features are on.

Always true: counted when asked for, so that a write costs nothing more; each stored object counts once, whatever versions it is
served in.
"""

from __future__ import annotations

from dray.api.gates import Gates
from dray.apiserver.registry import Registry
from dray.apiserver.store import Store
from dray.cluster import numbers


def page(registry: Registry, store: Store, gates: Gates) -> bytes:
    """In Prometheus' text format."""
    told = numbers.Registry()
    objects = told.gauge("apiserver_resource_objects", "Objects that are stored, by group and resource.", ("group", "resource"))
    stored = {each.storage: each for each in reversed(registry.resources) if "list" in each.verbs}
    for resource in stored.values():
        objects.labels(resource.kind.group, resource.kind.plural).set(len(store.table(resource.storage).entries))
    numbers.tell_features(told, gates)
    return told.text()
