"""Whatever happens to a cluster, every promise holds: random scenarios, judged while they run and at a quiet end.

``make soak`` runs seeds that nobody has tried; these are the same every time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from dray.api.kinds import PODS
from dray.api.queues import RESOURCES_ANNOTATION as RESOURCES
from dray.cluster.port import Verb, Write
from dray.cluster.world import World
from dray.nodes.hardware import CATALOGUE
from dray.runtime.faults import EVERY
from dray.runtime.virtual import Written
from dray.simulate.run import simulate
from dray.simulate.scenario import HOSTS, made_of
from tests.simulate.judging import fails, judge, more_than_all, untrue
from tests.simulate.judging_evictions import Evictions
from tests.simulate.minimising import Minimising
from tests.simulate.random_crowds import crowd
from tests.simulate.random_scenarios import Document, generate
from tests.simulate.soak import Flavour, outcomes

SEEDS = (10_001, 10_004, *range(10_006, 10_011), 10_012, 10_017, 10_018, 10_020, 10_023, 10_024, 10_026, 10_029, 10_030)
MANY_SEEDS = range(1000)
IN_COMPANY = (2_000_000, 2_000_065, 2_000_113, 2_000_143)
OF_TEAMS = (*range(8_451_000, 8_451_008), 9_100_007)
OF_CROWDS = range(90_000_000, 90_000_008)
MIXTURES = (800, 802, 805, 816)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_scenario_keeps_every_promise(seed: int) -> None:
    assert judge(generate(seed)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", IN_COMPANY)
def test_so_does_one_in_company(seed: int) -> None:
    """With queues and gangs, zones, volumes, quotas and whatever else shares a cluster with devices."""
    assert judge(generate(seed, company=True)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", OF_TEAMS)
def test_so_does_one_of_teams(seed: int) -> None:
    """With queues and gangs that need more than there is."""
    assert judge(generate(seed, teams=True)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", MIXTURES)
def test_so_does_a_mixture(seed: int) -> None:
    """With much of everything at once: zones beside claims, drivers and schedulers that change."""
    assert judge(generate(seed, mixtures=True)).failures == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", OF_CROWDS)
def test_so_does_a_crowd(seed: int) -> None:
    """Of gangs that would fit, and leave for each other all the time."""
    assert judge(crowd(seed)).failures == []


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_many_random_scenarios_keep_every_promise() -> None:
    runs = outcomes(iter(MANY_SEEDS), os.cpu_count() or 1, Flavour())
    wrong = {seed: outcome.kinds for seed, outcome in runs if outcome.failures}
    assert wrong == {}, "again: make soak ARGS='--seed N --alone'"


def test_the_same_seed_makes_the_same_scenario_and_the_same_run() -> None:
    assert generate(10_000) == generate(10_000)
    assert judge(generate(10_000)).digest == judge(generate(10_000)).digest != judge(generate(10_001)).digest


def test_company_has_everything_that_devices_share_a_cluster_with() -> None:
    drawn = [document for seed in range(60) for document in generate(seed, company=True)]
    kinds = {document["kind"] for document in drawn}
    assert kinds >= {"Queue", "PodGroup", "PersistentVolume", "PersistentVolumeClaim", "ResourceQuota", "PodDisruptionBudget"}
    specs = [document["spec"] for document in drawn if document["kind"] == "Scenario"]
    assert any("featureGates" in spec for spec in specs)
    assert any("heartbeat" in spec for spec in specs)
    assert any(entry.startswith("zones:") for spec in specs for entry in spec["hardware"])
    applied = {step["apply"]["kind"] for spec in specs for step in spec["steps"] if "apply" in step}
    assert applied >= {"StatefulSet", "DaemonSet", "Node", "ResourceSlice"}


def test_mixtures_have_everything_that_comes_together() -> None:
    drawn = [document for seed in range(60) for document in generate(seed, mixtures=True)]
    steps = [step for document in drawn if document["kind"] == "Scenario" for step in document["spec"]["steps"]]
    patched = [step["patch"] for step in steps if "patch" in step]
    divided = [json.loads(each["metadata"]["annotations"]["dray.dev/numa"]) for each in patched if _is_divided(each)]
    managers = [each["topologyManager"] for each in divided]
    assert {each["policy"] for each in managers} == {"none", "best-effort", "restricted", "single-numa-node"}
    assert {each["scope"] for each in managers} == {"pod", "container"}
    assert {each["kind"] for each in patched} >= {"Node", "Deployment", "DeviceTaintRule", "ResourceSlice"}
    pools = [step["apply"]["spec"]["pool"] for step in steps if step.get("apply", {}).get("kind") == "ResourceSlice"]
    assert any(pool["resourceSliceCount"] == 2 for pool in pools)
    profiles = [each["profiles"] for each in drawn if each["kind"] == "KubeSchedulerConfiguration"]
    assert {len(each) for each in profiles} == {1, 2}
    assert any(plugin["name"] == "NUMA" for each in profiles for plugin in each[0]["pluginConfig"])
    assert {document["kind"] for document in drawn} >= {"Queue", "PodGroup", "PersistentVolume", "ResourceQuota"}


def _is_divided(patch: Document) -> bool:
    return "dray.dev/numa" in (patch["metadata"].get("annotations") or {})


def test_teams_have_everything_that_happens_to_queues_and_gangs() -> None:
    drawn = [document for seed in range(40) for document in generate(seed, teams=True)]
    steps = [step for document in drawn if document["kind"] == "Scenario" for step in document["spec"]["steps"]]
    assert {document["kind"] for document in drawn} >= {"Queue", "PodGroup", "Topology", "ResourceClaim", "ResourceClaimTemplate"}
    for verb in ("patch", "delete"):
        assert {step[verb]["kind"] for step in steps if verb in step} >= {"Queue", "PodGroup"}
    groups = [document["spec"] for document in drawn if document["kind"] == "PodGroup"]
    assert {name for spec in groups for name in spec} >= {"minMember", "subGroups", "minSubGroup", "topologyConstraint"}
    queues = [document for document in drawn if document["kind"] == "Queue"]
    assert {name for queue in queues for name in queue["spec"]} >= {"parentQueue", "reclaimMinRuntime", "preemptMinRuntime"}
    counted = {name for queue in queues for name in json.loads(queue["metadata"].get("annotations", {}).get(RESOURCES, "{}"))}
    assert {name.partition("/")[0] for name in counted} >= {"deviceclass", "counter", "capacity", "dray.dev"}


def test_mixtures_are_taken_by_the_api() -> None:
    """What is deleted at once may not be there yet."""
    for seed in range(3):
        report = simulate(made_of(((document["kind"], document) for document in generate(seed, mixtures=True)), until=1.0))
        assert [each.text for each in report.refused_objects if each.at == 0 and ".delete" not in each.where] == []


def test_without_teams_scenarios_are_what_they_were() -> None:
    alone, with_teams = generate(7), generate(7, teams=True)
    assert alone != with_teams
    assert all(each in with_teams for each in alone if each["kind"] != "Scenario")


def test_crowds_have_everything_that_may_come_in_between() -> None:
    drawn = [document for seed in range(120) for document in crowd(seed)]
    specs = [document["spec"] for document in drawn if document["kind"] == "Scenario"]
    steps = [step for spec in specs for step in spec["steps"]]
    assert any(spec.get("faults", {}).get("away") for spec in specs)
    assert {step["crash"]["host"] for step in steps if "crash" in step} == {"nodes", "scheduler"}
    gone = {step["delete"]["kind"] for step in steps if "delete" in step}
    assert gone == {"DeviceTaintRule", "Node", "NodeResourceTopology", "Pod", "Queue"}
    assert {step["patch"]["kind"] for step in steps if "patch" in step} == {"Deployment", "Job", "Node", "PodGroup"}
    applied = {step["apply"]["kind"] for step in steps if "apply" in step}
    assert applied >= {"Job", "Deployment", "Node", "ResourceSlice", "PodDisruptionBudget", "Queue"}


def test_in_a_crowd_one_leaves_for_another() -> None:
    """Else nothing of what is judged of those who leave would be."""
    evicted = 0
    for seed in OF_CROWDS[2:4]:
        report = simulate(made_of((document["kind"], document) for document in crowd(seed)))
        evicted += sum(each.by == "scheduler" for each in report.evictions)
        assert [refused.text for refused in report.refused_objects if refused.at == 0] == []
    assert evicted >= 5


def test_scenarios_have_everything_that_can_happen() -> None:
    drawn = [document for seed in range(150) for document in generate(seed)]
    specs = [document["spec"] for document in drawn if document["kind"] == "Scenario"]
    steps = [step for spec in specs for step in spec["steps"]]
    hardware = {entry.partition(":")[0] for spec in specs for entry in spec["hardware"]}
    assert hardware == set(CATALOGUE) - {"h100-8", "zones"}  # its parts are in others; zones have scenarios of their own
    assert {spec["faults"]["kind"] for spec in specs if "faults" in spec} == set(EVERY)
    assert {step["crash"]["host"] for step in steps if "crash" in step} == set(HOSTS)
    assert {verb for step in steps for verb in step} == {"at", "count", "apply", "patch", "delete", "crash", "drain"}
    gone = {step["delete"]["kind"] for step in steps if "delete" in step}
    assert gone >= {"Pod", "Node", "ResourceSlice", "ResourceClaim", "DeviceClass", "DeviceTaintRule", "Deployment", "Job"}


@pytest.mark.parametrize("seed", range(10_000, 10_004))
def test_the_api_takes_what_is_drawn(seed: int) -> None:
    documents = generate(seed)
    report = simulate(made_of(((document["kind"], document) for document in documents), until=1.0))
    assert [refused.text for refused in report.refused_objects if refused.at == 0] == []


# ----------------------------------------------------------------------------------------------- what the judge sees


def pod(name: str, **spec: Any) -> Document:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def scenario(*steps: Document, **spec: Any) -> Document:
    given = {"until": "30s", "hardware": ["plain:2"], "steps": list(steps), **spec}
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}, "spec": given}


def test_a_pod_that_would_fit_and_waits_is_wrong() -> None:
    """Nobody serves the name of its scheduler, so nobody places it and nobody says why."""
    assert judge([scenario(), pod("left", schedulerName="somebody-else")]).kinds == ["no reason", "would fit"]


def test_a_pod_that_its_kubelet_refuses_is_wrong() -> None:
    """The scheduler does not look at zones, and places a pod where no zone has enough for it."""
    plugins = {"multiPoint": {"disabled": [{"name": "NUMA"}]}}
    profile = {"schedulerName": "default-scheduler", "plugins": plugins}
    version, kind = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
    blind = {"apiVersion": version, "kind": kind, "profiles": [profile]}
    wide = pod("wide")
    limits = {"cpu": "10", "memory": "1Gi", "dray.dev/plugin-gpu": "6"}
    wide["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    later = scenario({"at": "5s", "apply": wide}, hardware=["zones:1"])
    assert judge([later, blind]).kinds == ["refused"]
    assert judge([later]).failures == []


def test_a_pod_that_waits_with_a_reason_is_not() -> None:
    assert judge([scenario(), pod("large", nodeSelector={"no": "such"})]).failures == []


def test_a_pod_that_is_bound_and_never_starts_is_wrong() -> None:
    lost = {"at": "1s", "apply": pod("on-a-node", nodeName="plain-0", resourceClaims=[{"name": "d", "resourceClaimName": "no"}])}
    assert judge([scenario(lost)]).kinds == ["never starts"]


def allocated(name: str) -> Document:
    result = {"request": "r", "driver": "gpu.dray.dev", "pool": "gpu8-0", "device": "gpu-0"}
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.dray.dev"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["resource.kubernetes.io/delete-protection"]},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def test_two_owners_of_a_device_are_wrong() -> None:
    assert "device-owner" in judge([scenario(hardware=["gpu8:1"]), allocated("one"), allocated("two")]).kinds


def test_devices_that_nobody_uses_and_nobody_else_gets_are_wrong() -> None:
    assert judge([scenario(hardware=["gpu8:1"]), allocated("one")]).kinds == ["left over: allocation"]


def test_devices_that_a_pod_keeps_until_its_next_attempt_are_not() -> None:
    """It has two claims, and the device of one is never attached: at every moment at which it is looked it backs off."""

    def claim(name: str, attach: str) -> Document:
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fabric-gpu.dray.dev"}}]}}
        annotations = {"fabric.dray.dev/attach-seconds": "0s", "fabric.dray.dev/attach": attach}
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}

    claims = [{"name": name, "resourceClaimName": name} for name in ("good", "bad")]
    waits = pod("waits", resourceClaims=claims)
    made = [scenario(until="300s", hardware=["fabric:1"]), claim("good", "silence"), claim("bad", "fail"), waits]
    assert judge(made).failures == []


def test_a_gang_that_runs_in_part_is_wrong() -> None:
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}}
    one = pod("one", nodeName="plain-0")
    one["metadata"]["annotations"] = {"pod-group-name": "g"}
    spec = {"minMember": 2, "stalenessGracePeriod": "10m"}
    assert judge([scenario(), {**group, "spec": spec}, one]).kinds == ["runs in part"]


class Watched:
    """A run in which these pods are evicted for others, one a second, and these bound."""

    elapsed = 0.0

    def listen(self, listener: Callable[[Written], None]) -> None:
        self._listener = listener

    def happens(self, verb: Verb, key: str, about: str = "", subresource: str = "") -> None:
        self.elapsed += 1
        namespace, _, name = key.partition("/")
        write = Write(verb, PODS, namespace, name, subresource=subresource, about=about)
        self._listener(Written(self.elapsed, "scheduler", write, None))


def test_who_was_evicted_in_vain_is_told() -> None:
    watched, world = Watched(), World((PODS,))
    world.replace(PODS, [{**pod(name), "metadata": {**pod(name)["metadata"], "uid": name}} for name in ("waits", "runs")])
    evictions = Evictions(watched, quiet_from=1.5)
    watched.happens("delete", "default/early", "default/waits")
    watched.happens("delete", "default/a", "default/waits")
    watched.happens("delete", "default/b", "default/runs")
    watched.happens("create", "default/runs", subresource="binding")
    watched.happens("delete", "default/c", "default/gone")
    assert list(evictions.in_vain(world)) == [("pod/default/waits", "default/a left for it at 2 s, and it waits")]


def test_for_whom_devices_fail_others_may_leave_in_vain() -> None:
    """Also where only some of them do, as hardware says of itself."""
    assert fails(scenario(hardware=["cxl-fabric:1"]))
    assert not fails(scenario(hardware=["fabric:1"]))


def test_owners_that_drive_out_each_other_are_told() -> None:
    watched = Watched()
    evictions = Evictions(watched, quiet_from=0.0)
    for number in range(4):
        watched.happens("delete", f"default/one-{number}", f"default/other-{number}")
        assert not list(evictions.in_turn())
        watched.happens("delete", f"default/other-{number}", f"default/one-{number + 1}")
    assert [about for about, _ in evictions.in_turn()] == ["pods/default/one pods/default/other"]


@pytest.mark.parametrize(
    ("told", "now"),
    [
        (
            "1 node has not enough devices for request r/b (needs 2, 0 free), nor for r/a (needs 3) nor for r/c (needs 4).",
            "1 node has not enough devices for request r/b (needs 2, at most 1 free), nor for r/a, r/c.",
        ),
        (
            "1 node does not match the pod's node selector or affinity, 1 node has host port 80/TCP in use.",
            "1 node cannot use the devices of an already allocated claim, 1 node has host port 80/TCP in use.",
        ),
        (
            "1 node has not enough cpu, queue red would exceed its fair share of cpu: it holds 2 and deserves 2500m.",
            "1 node has not enough cpu, queue red would exceed its fair share of cpu: it holds 1 and deserves 3.",
        ),
        (
            "1 node has not enough devices for request r/b (needs 2), nor for r/c (needs 4).",
            "1 node has not enough devices for request r/b (needs 2), nor for r/a (needs 3) nor for r/c (needs 4).",
        ),
        (
            "1 node has not enough cpu (needs 2), queue red cannot take back enough of cpu: it holds 1, 0.4 are free.",
            "1 node has not enough cpu (needs 2), queue red cannot take back enough of cpu: it holds 1, 1.5 are free.",
        ),
    ],
    ids=("alternatives", "a check before it", "amounts", "fewer alternatives", "parts of amounts"),
)
def test_a_reason_that_is_still_so_in_other_words_is_not_wrong(told: str, now: str) -> None:
    assert untrue(f"0/2 nodes are available: {told}", f"it cannot be scheduled now: 0/2 nodes are available: {now}") == ""


def test_a_reason_that_is_no_longer_so_is_wrong() -> None:
    told, now = "1 node has host port 80/TCP in use.", "1 node has not enough cpu (needs 2)."
    assert untrue(f"0/1 nodes are available: {told}", f"0/1 nodes are available: {now}") == "has host port 80/TCP in use"


def test_more_nodes_than_there_are_is_wrong() -> None:
    assert more_than_all("0/2 nodes are available: 3 nodes have no device.")
    assert not more_than_all("0/2 nodes are available: 2 nodes have no device, 1 node has not enough cpu (needs 3).")


def test_an_error_inside_is_wrong() -> None:
    (failure,) = judge([scenario(hardware=["steam:1"])]).failures
    assert failure.kind == "exception ScenarioError"


def test_what_goes_wrong_is_made_small() -> None:
    noise = [{"at": f"{at}s", "apply": pod(f"noise-{at}"), "count": 3} for at in range(2, 8)]
    crash = {"at": "5s", "crash": {"host": "scheduler", "down": "1s"}}
    left = {"at": "4s", "apply": pod("left", schedulerName="somebody-else")}
    small = Minimising([pod("bystander"), scenario(*noise, crash, left, faults="slow")], "would fit").smallest()
    (rest,) = small
    assert rest["spec"] == {"until": "30s", "hardware": ["plain:1"], "steps": [left]}
