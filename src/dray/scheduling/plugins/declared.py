"""Features that a pod needs of a kubelet, and that the node must declare in ``status.declaredFeatures``."""

from __future__ import annotations

from collections.abc import Iterator

from dray.books.demand import Demand
from dray.books.nodes import NodeInfo
from dray.scheduling.plugins.base import Check, Compiled, PodShape, Reasons, because, codes_of


def needed(demand: Demand) -> Iterator[str]:
    """As upstream infers them from the spec."""
    spec = demand.spec
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == "RestartAllContainers" for container in containers for rule in container.restart_policy_rules):
        yield "RestartAllContainersOnContainerExits"
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"
    if any(mount.bind_mount_options for container in containers for mount in container.volume_mounts):
        yield "VolumeBindMountOptions"


def declares(features: tuple[str, ...]) -> Check:
    def check(info: NodeInfo) -> Reasons | None:
        declared = info.node.status.declared_features
        missing = next((feature for feature in features if feature not in declared), None)
        return None if missing is None else because("NodeFeatureMissing", feature=missing)

    return check


class NodeDeclaredFeatures:
    name = "NodeDeclaredFeatures"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        features = tuple(needed(shape.demand))
        return Compiled(check=declares(features)) if features else None
