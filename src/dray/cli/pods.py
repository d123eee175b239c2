"""How a pod is named on the command line, and found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.api.times import format_time
from dray.cli.trouble import Trouble
from dray.cluster.world import World
from dray.explain.story import after_death


def named(pod: str, namespace: str | None) -> tuple[str, str]:
    """Name and namespace, if one is told: ``POD``, ``pod/POD`` and ``NAMESPACE/POD`` are all understood."""
    prefix, slash, name = pod.rpartition("/")
    if slash and prefix not in ("pod", "pods") and not namespace:
        return name, prefix
    return name, namespace or ""


def find(world: World, name: str, namespace: str, events: Iterable[Mapping[str, Any]] = ()) -> Pod:
    """The pod. Of one that is gone, ``events`` say what was told of it last."""
    found: Pod | None = world.get(PODS, f"{namespace}/{name}")
    if found is None and (told := after_death(f"{namespace}/{name}", events)):
        last = told[-1]
        by = f" by {last.by}" if last.by else ""
        raise Trouble(
            f'pod "{name}" no longer exists in namespace "{namespace}"; last event, at {format_time(last.at)}{by}: '
            f"{last.what}: {last.detail}; `dray story {name} -n {namespace}` shows the rest"
        )
    if found is None:
        elsewhere = sorted(key for key in world.all(PODS) if key.rpartition("/")[2] == name)
        here = [each.metadata.name for each in world.all(PODS).values() if each.metadata.namespace == namespace]
        near = get_close_matches(name, sorted(here), 1, 0.8)
        hint = f"; did you mean {', '.join(elsewhere[:3])}?" if elsewhere else f"; did you mean {near[0]}?" if near else ""
        raise Trouble(f'pod "{name}" not found in namespace "{namespace}"{hint}')
    return found
