"""Which plugins there are: Dray's own, in upstream's order, and those that other packages bring.

A package adds a plugin with an entry point of the group ``dray.plugins``: a callable that takes the scheduler's ``Parts`` and
answers a ``Plugin``. It filters and scores like any other; its weight is 1 unless the configuration says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final

from dray.api.codes import register
from dray.scheduling.parts import Parts
from dray.scheduling.plugins.base import Plugin
from dray.scheduling.plugins.devices import DynamicResources
from dray.scheduling.plugins.images import ImageLocality, ImageNodes
from dray.scheduling.plugins.neighbours import InterPodAffinity, PodTopologySpread
from dray.scheduling.plugins.node import NodeAffinity, NodePorts, NodeUnschedulable, TaintToleration
from dray.scheduling.plugins.resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from dray.scheduling.plugins.volumes import VOLUME_PLUGINS, VolumePlugin, Volumes
from dray.scheduling.shape.extended import DeviceBacked

GROUP: Final = "dray.plugins"
Factory = Callable[[Parts], Plugin]


@lru_cache(maxsize=1)
def installed() -> dict[str, Factory]:
    """Plugins of other packages by the name of their entry point, which is the plugin's name."""
    return {found.name: found.load() for found in entry_points(group=GROUP)}


def plugins(parts: Parts, volumes: Volumes, images: ImageNodes, devices: DynamicResources) -> list[Plugin]:
    backed = DeviceBacked(parts.gates("DRAExtendedResource"), parts.classes, parts.engine)
    made: list[Plugin] = [
        NodeUnschedulable(),
        TaintToleration(),
        NodeAffinity(),
        NodePorts(),
        NodeResourcesFit(backed.offers, backed.on_node),
        *(VolumePlugin(name, volumes) for name in VOLUME_PLUGINS),
        PodTopologySpread(),
        InterPodAffinity(),
        devices,
        NodeResourcesBalancedAllocation(backed.offers, backed.on_node),
        ImageLocality(images),
    ]
    for factory in installed().values():
        made.append(factory(parts))
        register(made[-1].codes)
    return made
