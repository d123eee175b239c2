"""The controller keeps the status of quotas true: as objects go, as quotas and classes change, with faults and after restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.gates import Gates
from dray.api.kinds import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    Kind,
)
from dray.api.quantity import Quantity
from dray.cluster.port import Refused
from dray.controllers.quotas import Quotas
from dray.runtime.faults import EVERY, NONE, Faults
from tests.quota.room import GPU_DEVICES, GPU_EXPLICIT, GPU_IMPLICIT, GPU_NAMES, claim, exactly, pod, special
from tests.simulated import Place

COUNTED = (PODS, CONFIG_MAPS, SERVICES, RESOURCE_CLAIMS, RESOURCE_QUOTAS)


def place(seed: int = 0, faults: Faults = NONE, counted: tuple[Kind, ...] = COUNTED) -> Place:
    made = Place(seed, faults)
    embedded = bool(counted)
    made.start("quotas", (*COUNTED, DEVICE_CLASSES), lambda world: [Quotas(world, Gates.dray(), counted, embedded=embedded)])
    return made


def later(where: Place, seconds: float) -> None:
    where.shell.run(where.shell.clock.now - where.shell.epoch + seconds)


def quota(where: Place, name: str = "q", **hard: Any) -> None:
    where.create(RESOURCE_QUOTAS, {"metadata": {"name": name}, "spec": {"hard": {k: str(v) for k, v in hard.items()}}})


def status(where: Place, name: str = "q") -> dict[str, Any]:
    found = where.get(RESOURCE_QUOTAS, name)
    assert found is not None
    shown: dict[str, Any] = found.get("status", {})
    return shown


def test_a_new_quota_shows_its_usage_at_once() -> None:
    here = place()
    here.create(PODS, pod("a"))
    quota(here, pods=3, **{"count/configmaps": 1, "count/unknown.example": 1})
    later(here, 0.5)
    assert status(here) == {
        "hard": {"pods": "3", "count/configmaps": "1", "count/unknown.example": "1"},
        "used": {"pods": "1", "count/configmaps": "0"},
    }


def test_usage_goes_down_when_pods_finish() -> None:
    here = place()
    quota(here, pods=3)
    for name in "ab":
        here.create(PODS, pod(name))
    later(here, 5)
    here.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    later(here, 5)
    assert status(here)["used"] == {"pods": "1"}


def test_what_only_the_server_can_count_is_left_as_it_is() -> None:
    here = place()
    quota(here, pods=3, **{"count/nets.example.com": 5})
    later(here, 5)
    here.patch(RESOURCE_QUOTAS, "q", {"status": {"used": {"count/nets.example.com": "2", "pods": "1"}}}, subresource="status")
    later(here, 5)
    assert status(here)["used"] == {"count/nets.example.com": "2", "pods": "0"}


def test_a_changed_quota_shows_only_its_new_names() -> None:
    here = place()
    quota(here, pods=3, configmaps=2)
    later(here, 2)
    here.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"configmaps": None, "pods": "7", "services": "1"}}})
    later(here, 5)
    assert status(here) == {"hard": {"pods": "7", "services": "1"}, "used": {"pods": "0", "services": "0"}}


def test_what_somebody_else_writes_into_the_status_is_put_right() -> None:
    here = place()
    quota(here, pods=3)
    later(here, 2)
    here.patch(RESOURCE_QUOTAS, "q", {"status": {"used": {"pods": "9"}, "hard": {"pods": "1"}}}, subresource="status")
    later(here, 5)
    assert status(here) == {"hard": {"pods": "3"}, "used": {"pods": "0"}}


def test_a_pod_that_outstays_its_grace_is_let_go_without_any_event() -> None:
    here = place()
    quota(here, pods=3)
    here.create(PODS, pod("a", nodeName="gone", terminationGracePeriodSeconds=20))
    here.delete(PODS, "a")
    later(here, 35)
    assert status(here)["used"] == {"pods": "1"}
    later(here, 15)
    assert status(here)["used"] == {"pods": "0"}


def test_a_class_that_comes_later_brings_the_devices_together() -> None:
    here = place()
    quota(here, **dict.fromkeys(GPU_NAMES, 9))
    here.create(PODS, pod("a", limits={"example.com/gpu": "2"}))
    later(here, 5)
    assert status(here)["used"] == {GPU_EXPLICIT: "2", GPU_DEVICES: "0", GPU_IMPLICIT: "0"}
    here.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}})
    later(here, 10)
    assert status(here)["used"] == dict.fromkeys(GPU_NAMES, "2")


def test_nothing_is_written_while_nothing_differs() -> None:
    here = place()
    quota(here, pods=3)
    later(here, 3)
    before = status(here), here.get(RESOURCE_QUOTAS, "q")["metadata"]["resourceVersion"]  # type: ignore[index]
    here.create(PODS, pod("a"))
    here.delete(PODS, "a", gracePeriodSeconds=0)
    later(here, 60)
    assert status(here) == before[0]
    assert int(here.get(RESOURCE_QUOTAS, "q")["metadata"]["resourceVersion"]) - int(before[1]) < 5  # type: ignore[index]


# ------------------------------------------------------------------------------------------- beside kube-controller-manager


class TestBesideKubernetes:
    """Where somebody else counts, and admission charges the class only when the claim is made."""

    @pytest.fixture
    def here(self) -> Place:
        made = place(counted=())
        made.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}})
        quota(made, pods=3, **dict.fromkeys(GPU_NAMES, 9))
        self.shown(made, pods="0", **dict.fromkeys(GPU_NAMES, "0"))
        return made

    def shown(self, here: Place, **used: str) -> None:
        hard = here.get(RESOURCE_QUOTAS, "q")["spec"]["hard"]  # type: ignore[index]
        here.patch(RESOURCE_QUOTAS, "q", {"status": {"hard": hard, "used": used}}, subresource="status")

    def test_only_devices_are_touched(self, here: Place) -> None:
        here.create(PODS, pod("a", limits={"example.com/gpu": "1"}, nodeName="with-plugin"))
        self.shown(here, pods="7", **{GPU_EXPLICIT: "1", GPU_DEVICES: "0", GPU_IMPLICIT: "0"})
        later(here, 10)
        assert status(here)["used"] == {"pods": "7", **dict.fromkeys(GPU_NAMES, "1")}

    def test_a_pod_that_waits_leaves_the_class_to_its_claim(self, here: Place) -> None:
        owner = here.create(PODS, pod("a", limits={"example.com/gpu": "1"}))
        self.shown(here, pods="1", **{GPU_EXPLICIT: "1", GPU_DEVICES: "0", GPU_IMPLICIT: "0"})
        later(here, 10)
        assert status(here)["used"] == {"pods": "1", GPU_EXPLICIT: "1", GPU_DEVICES: "0", GPU_IMPLICIT: "0"}
        here.create(RESOURCE_CLAIMS, special("made", owner, exactly(1)))
        self.shown(here, pods="1", **{GPU_EXPLICIT: "1", GPU_DEVICES: "1", GPU_IMPLICIT: "1"})
        later(here, 10)
        assert status(here)["used"] == {"pods": "1", **dict.fromkeys(GPU_NAMES, "1")}

    def test_a_quota_that_nobody_counted_yet_is_left_alone(self) -> None:
        made = place(counted=())
        quota(made, pods=3, **dict.fromkeys(GPU_NAMES, 9))
        later(made, 30)
        assert status(made) == {}


# ----------------------------------------------------------------------------------------------------- always a recount


NAMES = ("pods", "count/pods", "requests.cpu", "count/configmaps", "services.nodeports", "count/resourceclaims.resource.k8s.io")
HARD = {"pods": 4, "count/pods": 6, "requests.cpu": "2500m", "count/configmaps": 2, "services.nodeports": 3} | dict.fromkeys(
    GPU_NAMES, 7
)


def recount(here: Place) -> dict[str, Quantity]:
    """From the stored objects alone, as simply as it can be said."""
    pods = here.all(PODS)
    alive = [p for p in pods if p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    requests = [p["spec"]["containers"][0].get("resources", {}).get("requests", {}) for p in alive]
    cpu = sum(Quantity.parse(r.get("cpu", 0)).nanos for r in requests)
    asked = {p["metadata"]["uid"]: sum(int(a) for n, a in r.items() if "/" in n) for p, r in zip(alive, requests, strict=True)}
    gpus, claims = sum(asked.values()), here.all(RESOURCE_CLAIMS)
    exempt: set[str] = set()
    for found in sorted(claims, key=lambda c: (c["metadata"]["creationTimestamp"], c["metadata"]["name"])):
        owner = (found["metadata"].get("ownerReferences") or [{}])[0].get("uid", "")
        wanted = found["spec"]["devices"]["requests"][0]["exactly"]["count"]
        gpus += max(0, wanted - asked[owner]) if owner in asked and owner not in exempt else wanted
        exempt.add(owner)
    ports = sum(len(s["spec"]["ports"]) for s in here.all(SERVICES) if s["spec"]["type"] == "NodePort")
    counts = {
        "pods": len(alive),
        "count/pods": len(pods),
        "count/configmaps": len(here.all(CONFIG_MAPS)),
        "services.nodeports": ports,
    }
    return {"requests.cpu": Quantity(cpu)} | {n: Quantity.of(c) for n, c in (counts | dict.fromkeys(GPU_NAMES, gpus)).items()}


def step(here: Place, act: str, number: int, amount: int) -> None:
    name = f"x{number}"
    match act:
        case "pod":
            here.create(PODS, pod(name, {"cpu": f"{amount * 300}m"}, {"example.com/gpu": str(amount)}, nodeName="n"))
        case "finish":
            here.patch(PODS, name, {"status": {"phase": "Succeeded"}}, subresource="status")
        case "claim":
            here.create(RESOURCE_CLAIMS, claim(name, exactly(amount)))
        case "special":
            owner = here.get(PODS, name)
            if owner is not None:
                here.create(RESOURCE_CLAIMS, special(f"{name}-{amount}", owner, exactly(amount)))
        case "config":
            here.create(CONFIG_MAPS, {"metadata": {"name": name}})
        case "service":
            ports = [{"name": f"p{i}", "port": i + 1} for i in range(amount)]
            here.create(SERVICES, {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
        case "change":
            here.patch(SERVICES, name, {"spec": {"type": "ClusterIP" if amount == 1 else "NodePort"}})
        case "delete":
            kind = (PODS, RESOURCE_CLAIMS, CONFIG_MAPS, SERVICES)[amount % 4]
            here.delete(kind, name, gracePeriodSeconds=0)


ACTS = ("pod", "finish", "claim", "special", "config", "service", "change", "delete", "delete")
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 5), st.integers(1, 4), st.sampled_from((0, 0, 0.2, 3))), max_size=40
)


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), fault=st.sampled_from(sorted(EVERY)), steps=STEPS)
def test_whatever_comes_and_goes_usage_ends_as_a_recount_and_no_quota_is_ever_exceeded(
    seed: int, fault: str, steps: list[tuple[str, int, int, float]]
) -> None:
    here = place(seed, EVERY[fault])
    here.create(NODES, {"metadata": {"name": "n"}})
    here.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}})
    quota(here, **HARD)
    hard = {name: Quantity.parse(amount) for name, amount in HARD.items()}
    for act, number, amount, pause in steps:
        before = recount(here)
        try:
            step(here, act, number, amount)
        except Refused as error:
            if error.code == 403:
                assert recount(here) == before
        after = recount(here)
        assert all(after[name] <= hard[name] for name in hard if after[name] > before[name])
        later(here, pause)
    later(here, 400)
    assert {name: Quantity.parse(amount) for name, amount in status(here)["used"].items()} == recount(here)
