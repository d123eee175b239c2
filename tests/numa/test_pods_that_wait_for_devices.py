"""Zones and pods that come to their kubelet late, because their devices are made ready first: others come before them.

The kubelets really give out zones, the lowest first, so who overtakes whom shows as a pod that is refused.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS
from dray.testing import builders
from tests.numa.clusters import Json, ZonedCluster, aligned_pod, zoned_node
from tests.numa.test_gangs_and_consolidation import group, queued, queues

CONDITIONS = {"bindingConditions": ["example.com/ready"], "bindingFailureConditions": ["example.com/failed"]}
CPU2, CPU4 = {"cpus": 2, "memory": "8Gi"}, {"cpus": 4, "memory": "8Gi"}


def cluster(*zones: Json, devices: int = 4, exporter: str | None = "2s", nodes: int = 1, seed: int = 0) -> ZonedCluster:
    made = ZonedCluster(*(zoned_node(f"n{number}", *zones, exporter=exporter) for number in range(nodes)), seed=seed)
    fabric = [builders.device(f"d{number}", bindsToNode=True, **CONDITIONS) for number in range(devices)]
    made.create(builders.device_class(), builders.resource_slice("", fabric))
    return made


def waits(made: ZonedCluster, name: str, cpu: int, **more: Any) -> None:
    made.create(builders.claim(name), aligned_pod(name, cpu, claims=[name], **more))


def claiming(pod: Json) -> tuple[Json, Json]:
    """A claim, and the pod with it."""
    name = pod["metadata"]["name"]
    claimed = builders.pod(name, claims=[name])["spec"]
    pod["spec"]["resourceClaims"] = claimed["resourceClaims"]
    pod["spec"]["containers"][0]["resources"]["claims"] = claimed["containers"][0]["resources"]["claims"]
    return builders.claim(name), pod


def ready(made: ZonedCluster, name: str) -> None:
    claim = made.get(RESOURCE_CLAIMS, name)
    assert claim is not None
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    said = {"status": "True", "reason": "Said", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    device = {key: result[key] for key in ("driver", "pool", "device")}
    told = {"devices": [{**device, "conditions": [{"type": "example.com/ready", **said}]}]}
    made.patch(RESOURCE_CLAIMS, name, {"status": told}, subresource="status")


@pytest.mark.parametrize("exporter", ["2s", None])
@pytest.mark.parametrize("later", [3, 60])
def test_nobody_takes_the_only_zone_that_will_do_for_one_that_waits(exporter: str | None, later: int) -> None:
    """The kubelet would give it to whoever comes first, although the other zone would do for him."""
    made = cluster(CPU4, CPU2, exporter=exporter)
    waits(made, "a", 3)
    made.run(later)
    made.create(aligned_pod("b", 2))
    made.run(60)
    assert [made.node_of(name) for name in "ab"] == ["", ""]
    pod = made.get(PODS, "b")
    assert pod is not None
    assert "zones that are kept for a pod whose devices" in pod["status"]["conditions"][0]["message"]
    assert {reason.code for reason in made.why("b").reasons} == {"ZonesKept"}
    ready(made, "a")
    made.run(60)
    assert [list(made.zones_of(name)) for name in "ab"] == [["node-0"], ["node-1"]]
    assert [made.phase(name) for name in "ab"] == ["Running", "Running"]
    assert made.refused == 0


@pytest.mark.parametrize("exporter", ["2s", None])
def test_who_leaves_it_another_zone_goes_ahead_and_both_are_recorded_where_they_are(exporter: str | None) -> None:
    made = cluster(CPU4, CPU4, exporter=exporter)
    waits(made, "a", 3)
    made.run(30)
    made.create(aligned_pod("b", 2))
    made.run(30)
    assert list(made.zones_of("b")) == ["node-0"]
    ready(made, "a")
    made.run(30)
    assert [made.phase(name) for name in "ab"] == ["Running", "Running"]
    assert list(made.zones_of("a")) == ["node-1"]
    made.create(aligned_pod("c", 2), aligned_pod("d", 1))
    made.run(60)
    assert [list(made.zones_of(name)) for name in "cd"] == [["node-0"], ["node-1"]]
    assert made.refused == 0


def test_a_pod_whose_zone_a_stranger_took_is_not_bound_and_tried_again() -> None:
    made = cluster(CPU4, CPU2)
    waits(made, "a", 3)
    made.run(30)
    made.create(aligned_pod("stranger", 2, nodeName="n0", schedulerName="another"))
    made.run(30)
    ready(made, "a")
    made.run(30)
    assert made.node_of("a") == ""
    assert any("others came while its devices" in event.get("message", "") for event in made.all(EVENTS))
    made.delete(PODS, "stranger")
    made.run(60)
    ready(made, "a")
    made.run(30)
    assert (made.phase("a"), made.refused) == ("Running", 0)


def test_members_of_a_gang_come_in_the_order_in_which_they_fit_however_long_their_devices_take() -> None:
    made = cluster(CPU4, CPU2)
    made.create(*queues(), group("g", 2))
    made.run(1)
    for name, cpu in (("a-small", 2), ("large", 4)):
        made.create(*claiming(queued(name, cpu, "g")))
    made.run(60)
    for name in ("a-small", "large"):
        ready(made, name)
    made.run(60)
    assert [made.phase(name) for name in ("a-small", "large")] == ["Running", "Running"]
    assert made.refused == 0


@pytest.mark.parametrize("sizes", [(2, 4, 4), (4, 2, 4), (4, 4, 2)])
def test_a_small_member_with_a_device_does_not_take_the_zone_of_a_large_one_without(sizes: tuple[int, ...]) -> None:
    made = cluster(CPU4, CPU2, nodes=2)
    made.create(*queues(), group("g", 3))
    made.run(1)
    for number, cpu in enumerate(sizes):
        pod = queued(f"m{number}", cpu, "g")
        made.create(*(claiming(pod) if cpu == 2 else (pod,)))
    made.run(30)
    ready(made, f"m{sizes.index(2)}")
    made.run(60)
    assert [made.phase(f"m{number}") for number in range(3)] == ["Running"] * 3
    assert made.refused == 0


@pytest.mark.parametrize("seed", range(4))
def test_whoever_comes_when_no_kubelet_refuses_anybody(seed: int) -> None:
    rng = random.Random(seed)
    made = cluster(CPU4, CPU2, {"cpus": 3, "memory": "8Gi"}, devices=6, nodes=2, seed=seed)
    waiting: list[str] = []
    for number in range(40):
        name = f"p{number}"
        lasts = {"dray.dev/finishes-after": f"{rng.randint(10, 60)}s"}
        if rng.random() < 0.4:
            waits(made, name, rng.randint(1, 4), annotations=lasts)
            waiting.append(name)
        else:
            made.create(aligned_pod(name, rng.randint(1, 4), annotations=lasts))
        made.run(rng.randint(1, 12))
        for each in [each for each in waiting if rng.random() < 0.2]:
            claim = made.get(RESOURCE_CLAIMS, each)
            if claim is not None and claim["status"].get("allocation"):
                ready(made, each)
    for _ in range(60):
        made.run(10)
        for each in waiting:
            claim = made.get(RESOURCE_CLAIMS, each)
            if claim is not None and claim["status"].get("allocation") and not made.node_of(each):
                ready(made, each)
    assert made.refused == 0
    assert {pod["status"]["phase"] for pod in made.all(PODS)} == {"Succeeded"}


@pytest.mark.parametrize("seed", [4, 13])
def test_random_gangs_with_devices_are_never_refused_either(seed: int) -> None:
    """With 13 the bind of one is on its way when it has been waited for long enough, and others must not go ahead of it."""
    rng = random.Random(seed)
    made = cluster(CPU4, {"cpus": rng.randint(2, 4), "memory": "8Gi"}, devices=8, nodes=2, seed=seed)
    made.create(*queues())
    made.run(1)
    waiting: list[str] = []

    def prepare(chance: float) -> None:
        for each in [each for each in waiting if chance == 1 or rng.random() < chance]:
            claim = made.get(RESOURCE_CLAIMS, each)
            if claim is not None and claim["status"].get("allocation") and (chance < 1 or not made.node_of(each)):
                ready(made, each)

    for number in range(14):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        lasts = {"dray.dev/finishes-after": f"{rng.randint(5, 40)}s"}
        made.create(group(f"g{number}", len(sizes)))
        for member, cpu in enumerate(sizes):
            pod = queued(f"g{number}-{member}", cpu, f"g{number}", **lasts)
            if rng.random() < 0.5:
                waiting.append(pod["metadata"]["name"])
                made.create(*claiming(pod))
            else:
                made.create(pod)
        made.run(rng.randint(1, 15))
        if rng.random() < 0.05:
            made.crash("scheduler")
        prepare(0.3)
    for _ in range(40):
        made.run(10)
        prepare(1)
    assert made.refused == 0
    assert {pod["status"]["phase"] for pod in made.all(PODS)} == {"Succeeded"}
