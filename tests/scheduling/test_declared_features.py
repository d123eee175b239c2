"""NodeDeclaredFeatures: a pod that needs something of the kubelet goes only where the node says that it has it."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, node

from dray.api.kinds import NODES

RESTARTS = {"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}
NEEDS: dict[str, dict[str, Any]] = {
    "RestartAllContainersOnContainerExits": {
        "containers": [{"name": "c", "image": "x", "restartPolicy": "Never", **RESTARTS}],
        "restartPolicy": "Never",
    },
    "UserNamespacesHostNetworkSupport": {
        "containers": [{"name": "c", "image": "x"}],
        "hostNetwork": True,
        "hostUsers": False,
    },
}


@pytest.mark.parametrize("feature", NEEDS)
def test_a_node_without_the_feature_is_refused_until_it_declares_it(sim: Sim, feature: str) -> None:
    sim.add_node("n1")
    sim.add_pod("p", **NEEDS[feature])
    sim.add_pod("other")
    sim.settle(2)
    assert (sim.node_of("p"), sim.node_of("other")) == ("", "n1")
    assert f"does not declare the feature {feature}" in sim.condition("p")["message"]
    declared = node("n1")
    declared["status"]["declaredFeatures"] = [feature]
    declared["metadata"]["uid"] = sim.api.objects[NODES]["n1"]["metadata"]["uid"]
    sim.api.put(NODES, declared)
    sim.settle(15)
    assert sim.node_of("p") == "n1"
