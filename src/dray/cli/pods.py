"""How a pod is named on the command line, and found."""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.cli.trouble import Trouble
from dray.cluster.world import World


def named(pod: str, namespace: str | None) -> tuple[str, str]:
    """Name and namespace, if one is told: ``POD``, ``pod/POD`` and ``NAMESPACE/POD`` are all understood."""
    prefix, slash, name = pod.rpartition("/")
    if slash and prefix not in ("pod", "pods") and not namespace:
        return name, prefix
    return name, namespace or ""


def find(world: World, name: str, namespace: str) -> Pod:
    found: Pod | None = world.get(PODS, f"{namespace}/{name}")
    if found is None:
        elsewhere = sorted(key for key in world.all(PODS) if key.rpartition("/")[2] == name)
        hint = f"; there is {', '.join(elsewhere[:3])}" if elsewhere else ""
        raise Trouble(f'pod "{name}" not found in namespace "{namespace}"{hint}')
    return found
