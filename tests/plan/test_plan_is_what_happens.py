"""What a plan says is what the scheduler then does when the same change is really made: on virtual time, over random clusters."""

from __future__ import annotations

import random

import pytest

from dray.api.kinds import RESOURCE_CLAIMS
from dray.explain.plan import plan
from dray.testing import VirtualCluster
from tests.plan.clusters import placed, read, really, some_changes, some_cluster


def devices(made: VirtualCluster, key: str) -> set[tuple[str, str]]:
    """What a pod of a name of its own has: its claim is called like the pod."""
    claim = made.server.get(RESOURCE_CLAIMS, key) or {}
    found = (claim.get("status") or {}).get("allocation") or {}
    return {(each["pool"], each["device"]) for each in (found.get("devices") or {}).get("results") or ()}


def compare(seed: int) -> None:
    rng = random.Random(seed)
    made = some_cluster(rng)
    changes = some_changes(rng)
    before = {body["metadata"]["uid"]: key for key, body in placed(made).items()}
    told = plan(read(made.server), changes, now=made.clock.now)
    really(made, changes)
    after = placed(made)
    for pod in told.pods:
        if pod.pod.startswith("default/new-"):
            assert after[pod.pod]["spec"].get("nodeName", "") == pod.node, (seed, pod)
            # Which devices of the node it gets after others left depends on how quickly those gave back theirs.
            planned = {(each.pool, each.device) for each in pod.devices}
            assert len(planned) == len(devices(made, pod.pod)), (seed, pod)
            assert pod.after or planned == devices(made, pod.pod), (seed, pod)
    left = set(before) - {body["metadata"]["uid"] for body in after.values()}
    assert {before[uid] for uid in left} == {each.pod for each in told.evictions}, seed
    assert told.waiting == sum(not body["spec"].get("nodeName") for body in after.values()), seed
    if changes.objects or told.evictions:
        # Pods that controllers made have other names: they are on the same nodes.
        nodes = sorted(body["spec"].get("nodeName", "") for body in after.values() if body["metadata"]["uid"] not in before)
        again = [each.place_then for each in told.evictions if each.for_ and each.again]
        asked = [pod.node for pod in told.pods if pod.pod not in before.values() or pod.instead_of]
        assert nodes == sorted(asked + again), seed


@pytest.mark.parametrize("seed", range(16))
def test_a_plan_is_what_happens(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_plans_are_what_happens(seed: int) -> None:
    compare(seed)
