"""Which plugins there are: Dray's own, in upstream's order, and those that other packages bring.

A package adds a plugin with an entry point of the group ``dray.plugins``: a callable that takes the scheduler's ``Parts`` and
answers a ``Plugin``. Where a profile names it, it filters and scores like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.api.codes import register
from dray.scheduling.config import FILTERS, SCORES
from dray.scheduling.parts import Parts
from dray.scheduling.plugins.base import Plugin
from dray.scheduling.plugins.declared import NodeDeclaredFeatures
from dray.scheduling.plugins.devices import DynamicResources
from dray.scheduling.plugins.images import ImageLocality, ImageNodes
from dray.scheduling.plugins.installed import installed
from dray.scheduling.plugins.neighbours import InterPodAffinity, PodTopologySpread
from dray.scheduling.plugins.node import NodeAffinity, NodePorts, NodeUnschedulable, TaintToleration
from dray.scheduling.plugins.numa import NUMA
from dray.scheduling.plugins.packing import NodePacking
from dray.scheduling.plugins.resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from dray.scheduling.plugins.volumes import VOLUME_PLUGINS, VolumePlugin, Volumes
from dray.scheduling.plugins.zones import Zones
from dray.scheduling.shape.extended import DeviceBacked

Factory = Callable[[Parts], Plugin]
_OWN: Final = frozenset((*FILTERS, *SCORES))


def plugins(parts: Parts, volumes: Volumes, images: ImageNodes, devices: DynamicResources, zones: Zones) -> list[Plugin]:
    backed = DeviceBacked(parts.gates("DRAExtendedResource"), parts.classes, parts.engine)
    made: list[Plugin] = [
        NodeUnschedulable(),
        NodeDeclaredFeatures(),
        TaintToleration(),
        NodeAffinity(),
        NodePorts(),
        NodeResourcesFit(backed.offers, backed.on_node),
        *(VolumePlugin(name, volumes) for name in VOLUME_PLUGINS),
        PodTopologySpread(),
        InterPodAffinity(),
        devices,
        NUMA(zones, parts.zones),
        NodeResourcesBalancedAllocation(backed.offers, backed.on_node),
        ImageLocality(images),
    ]
    used = {name for profile in parts.config.profiles for name in (*profile.filters, *dict(profile.scores))}
    if NodePacking.name in used:
        made.append(NodePacking())
    of_others = used - _OWN
    if not of_others:
        return made  # looking through every installed package would take longer than all the rest
    for name, found in installed().items():
        if name in of_others:
            factory: Factory = found.load()
            made.append(factory(parts))
            register(made[-1].codes)
    return made
