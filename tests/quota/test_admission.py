"""The embedded API server lets nobody beyond a quota, and says which quota, and what is asked, in use and allowed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.quota.room import IN_DEFAULT, PODS, QUOTAS, SERVICES, VOLUMES, Room, pod

GI = 1024**3


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_pod_too_many_is_refused_with_the_numbers(room: Room) -> None:
    room.quota(pods=2, **{"requests.cpu": "1500m"})
    for name in ("a", "b"):
        room.post(PODS, pod(name, {"cpu": "700m"}))
    assert room.used() == {"pods": "2", "requests.cpu": "1400m"}
    assert room.refused(PODS, pod("c", {"cpu": "700m"})) == (
        'pods "c" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=700m, '
        "used: pods=2,requests.cpu=1400m, limited: pods=2,requests.cpu=1500m"
    )
    room.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert room.used() == {"pods": "1", "requests.cpu": "700m"}
    room.post(PODS, pod("c", {"cpu": "100m"}))
    assert room.used() == {"pods": "2", "requests.cpu": "800m"}


def test_only_the_names_that_are_exceeded_are_told(room: Room) -> None:
    room.quota(pods=5, memory="1Gi")
    message = room.refused(PODS, pod(requests={"memory": "2Gi"}))
    assert message.endswith("exceeded quota: q, requested: memory=2Gi, used: memory=0, limited: memory=1Gi")


def test_every_quota_of_the_namespace_counts(room: Room) -> None:
    room.quota("loose", pods=10)
    room.quota("tight", pods=1)
    room.post(PODS, pod("a"))
    assert room.used("loose") == room.used("tight") == {"pods": "1"}
    assert "exceeded quota: tight" in room.refused(PODS, pod("b"))
    assert room.used("loose") == {"pods": "1"}


def test_a_quota_counts_what_was_there_before_it(room: Room) -> None:
    room.post(PODS, pod("before"))
    room.quota(pods=2)
    room.post(PODS, pod("a"))
    assert room.used() == {"pods": "2"}
    assert "used: pods=2" in room.refused(PODS, pod("b"))


def test_a_status_that_somebody_meddled_with_lets_nobody_in(room: Room) -> None:
    room.quota(pods=1)
    room.post(PODS, pod("a"))
    room.patch(f"{QUOTAS}/q/status", {"status": {"used": {"pods": "0"}}})
    assert "used: pods=1" in room.refused(PODS, pod("b"))


def test_a_dry_run_is_refused_too_and_charges_nothing(room: Room) -> None:
    room.quota(pods=1)
    room.post(f"{PODS}?dryRun=All", pod("a"))
    assert room.used() == {}
    room.post(PODS, pod("a"))
    room.post(f"{PODS}?dryRun=All", pod("b"), code=403)


def test_containers_must_say_what_a_quota_counts(room: Room) -> None:
    room.quota(**{"requests.memory": "1Gi", "limits.cpu": 1})
    assert room.refused(PODS, pod()) == (
        'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c'
    )
    room.post(PODS, pod("whole", resources={"requests": {"memory": "1Gi"}, "limits": {"cpu": "1"}}))


def test_other_resources_need_not_be_said(room: Room) -> None:
    room.quota(**{"requests.ephemeral-storage": "1Gi", "requests.example.com/gpu": 1})
    room.post(PODS, pod())


def test_finished_pods_count_as_objects_only(room: Room) -> None:
    room.quota(**{"pods": 1, "count/pods": 2, "cpu": 1})
    room.post(PODS, pod("a", {"cpu": "1"}))
    room.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    room.post(PODS, pod("b", {"cpu": "1"}))
    assert room.used() == {"pods": "1", "count/pods": "2", "cpu": "1"}
    room.patch(f"{PODS}/b/status", {"status": {"phase": "Failed"}})
    assert "count/pods=2" in room.refused(PODS, pod("c", {"cpu": "1"}))


def test_a_pod_that_does_not_stop_in_its_time_no_longer_counts(room: Room) -> None:
    room.quota(pods=1)
    room.post(PODS, pod("a", nodeName="gone", terminationGracePeriodSeconds=30))
    room.delete(f"{PODS}/a")
    room.now += 59
    assert "exceeded" in room.refused(PODS, pod("b"))
    room.now += 3
    room.post(PODS, pod("b"))


def test_init_containers_sidecars_and_overhead_count_as_they_run(room: Room) -> None:
    def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **more}

    room.quota(**{"requests.cpu": 100, "limits.cpu": 100})
    made = pod(overhead={"cpu": "500m"})
    made["spec"]["containers"] = [container("a", "1"), container("b", "1")]
    made["spec"]["initContainers"] = [
        container("first", "4"),
        container("side", "1", restartPolicy="Always"),
        container("second", "3500m"),
    ]
    room.post(PODS, made)
    assert room.used() == {"requests.cpu": "5", "limits.cpu": "5"}


def test_objects_are_counted_by_kind(room: Room) -> None:
    room.quota(
        **{"configmaps": 1, "count/deployments.apps": 1, "count/resourceclaims.resource.k8s.io": 1, "count/nosuch.example": 1}
    )
    room.post(f"{IN_DEFAULT}/configmaps", {"metadata": {"name": "a"}})
    assert "requested: configmaps=1" in room.refused(f"{IN_DEFAULT}/configmaps", {"metadata": {"name": "b"}})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    room.post(deployments, {"metadata": {"name": "a"}, **deployment})
    assert "count/deployments.apps=1" in room.refused(deployments, {"metadata": {"name": "b"}, **deployment})
    assert room.used() == {"configmaps": "1", "count/deployments.apps": "1", "count/resourceclaims.resource.k8s.io": "0"}


def test_an_object_that_waits_for_a_finalizer_counts_until_it_is_gone(room: Room) -> None:
    configs = f"{IN_DEFAULT}/configmaps"
    room.quota(configmaps=1)
    room.post(configs, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    room.delete(f"{configs}/held")
    assert room.used() == {"configmaps": "1"}
    room.patch(f"{configs}/held", {"metadata": {"finalizers": None}})
    assert room.used() == {"configmaps": "0"}


def test_a_quota_counts_itself(room: Room) -> None:
    room.quota(resourcequotas=2)
    room.quota("other", pods=1)
    assert room.used() == {"resourcequotas": "2"}
    assert "exceeded quota: q" in room.refused(QUOTAS, {"metadata": {"name": "third"}, "spec": {"hard": {"pods": "1"}}})


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        ({"type": "ClusterIP", "ports": [{"port": 1}]}, ("1", "0", "0")),
        ({"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}, ("1", "2", "0")),
        ({"type": "LoadBalancer", "ports": [{"port": 1}]}, ("1", "1", "1")),
        ({"type": "LoadBalancer", "ports": [{"port": 1}], "allocateLoadBalancerNodePorts": False}, ("1", "0", "1")),
    ],
)
def test_services_count_their_ports_and_balancers(room: Room, spec: dict[str, Any], used: tuple[str, ...]) -> None:
    names = ("services", "services.nodeports", "services.loadbalancers")
    room.quota(**dict.fromkeys(names, 9))
    room.post(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    assert room.used() == dict(zip(names, used, strict=True))


def test_a_service_that_comes_to_need_a_balancer_is_charged(room: Room) -> None:
    room.quota(**{"services.loadbalancers": 0, "services.nodeports": 1})
    room.post(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})
    refusal = room.patch(f"{SERVICES}/s", {"spec": {"type": "LoadBalancer"}}, code=403)
    assert "exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0" in refusal["message"]
    room.patch(f"{SERVICES}/s", {"spec": {"type": "NodePort"}})
    assert room.used() == {"services.loadbalancers": "0", "services.nodeports": "1"}


def volume(name: str, storage: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **spec},
    }


def test_storage_is_counted_in_all_and_by_class(room: Room) -> None:
    fast = "fast.storageclass.storage.k8s.io/"
    room.quota(
        **{
            "persistentvolumeclaims": 3,
            "requests.storage": "10Gi",
            f"{fast}requests.storage": "4Gi",
            f"{fast}persistentvolumeclaims": 2,
        }
    )
    room.post(VOLUMES, volume("a", "3Gi", storageClassName="fast"))
    room.post(VOLUMES, volume("b", "5Gi"))
    assert room.used() == {
        "persistentvolumeclaims": "2",
        "requests.storage": "8Gi",
        f"{fast}requests.storage": "3Gi",
        f"{fast}persistentvolumeclaims": "1",
    }
    message = room.refused(VOLUMES, volume("c", "2Gi", storageClassName="fast"))
    assert f"requested: {fast}requests.storage=2Gi, used: {fast}requests.storage=3Gi" in message


# ----------------------------------------------------------------------------------------------------------------- scopes


def selected(scope: str, operator: str, *values: str) -> list[dict[str, Any]]:
    return [
        {"scopeName": scope, "operator": operator, "values": list(values)}
        if values
        else {"scopeName": scope, "operator": operator}
    ]


CROSSING = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {"matchLabels": {"a": "b"}}}
        ]
    }
}


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("Terminating", pod(activeDeadlineSeconds=60), pod()),
        ("NotTerminating", pod(), pod(activeDeadlineSeconds=60)),
        ("BestEffort", pod(), pod(requests={"cpu": "1"})),
        ("NotBestEffort", pod(requests={"cpu": "1"}), pod()),
        ("CrossNamespacePodAffinity", pod(affinity=CROSSING), pod()),
        ("PriorityClass", pod(priorityClassName="system-node-critical"), pod()),
    ],
)
def test_a_scope_counts_the_pods_in_it(room: Room, scope: str, inside: dict[str, Any], outside: dict[str, Any]) -> None:
    room.quota("plain", scopes=[scope], pods=1)
    room.quota("selected", selector=selected(scope, "Exists"), pods=1)
    room.post(PODS, {**outside, "metadata": {"name": "outside"}})
    room.post(PODS, {**inside, "metadata": {"name": "inside"}})
    assert room.used("plain") == room.used("selected") == {"pods": "1"}
    room.post(PODS, {**outside, "metadata": {"name": "outside-too"}})
    assert "exceeded quota: plain" in room.refused(PODS, {**inside, "metadata": {"name": "inside-too"}})


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [
        ("In", ["high"], {"high"}),
        ("NotIn", ["high"], {"low", "none"}),
        ("Exists", [], {"high", "low"}),
        ("DoesNotExist", [], {"none"}),
    ],
)
def test_priority_classes_are_selected(room: Room, operator: str, values: list[str], counted: set[str]) -> None:
    for name, value in (("high", 10), ("low", 1)):
        room.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    room.quota(selector=selected("PriorityClass", operator, *values), pods=9)
    for name in ("high", "low", "none"):
        before = room.used().get("pods", "0")
        room.post(PODS, pod(name, **({} if name == "none" else {"priorityClassName": name})))
        assert (room.used().get("pods", "0") != before) == (name in counted)


def test_a_quota_with_scopes_asks_only_its_own_pods_for_amounts(room: Room) -> None:
    room.quota(scopes=["Terminating"], **{"requests.cpu": 1})
    room.post(PODS, pod("free"))
    assert "must specify requests.cpu" in room.refused(PODS, pod("bound", activeDeadlineSeconds=5))


def test_volume_claims_are_counted_by_their_attributes_class(room: Room) -> None:
    room.quota(
        selector=selected("VolumeAttributesClass", "In", "gold"), **{"persistentvolumeclaims": 1, "requests.storage": "5Gi"}
    )
    room.post(VOLUMES, volume("silver", "1Gi", volumeAttributesClassName="silver"))
    room.post(VOLUMES, volume("gold", "1Gi", volumeAttributesClassName="gold"))
    assert room.used() == {"persistentvolumeclaims": "1", "requests.storage": "1Gi"}
    assert "exceeded quota" in room.refused(VOLUMES, volume("more", "1Gi", volumeAttributesClassName="gold"))


def test_quotas_that_make_no_sense_are_refused(room: Room) -> None:
    def wrong(**spec: Any) -> str:
        found: str = room.post(QUOTAS, {"metadata": {"name": "q"}, "spec": spec}, code=422)["message"]
        return found

    assert "must be a standard resource for quota" in wrong(hard={"bananas": "1"})
    assert "must be an integer" in wrong(hard={"pods": "1500m"})
    assert "unsupported scope" in wrong(hard={"pods": "1"}, scopes=["Nope"])
    assert "unsupported scope applied to resource" in wrong(hard={"cpu": "1"}, scopes=["BestEffort"])
    assert "conflicting scopes" in wrong(hard={"pods": "1"}, scopes=["BestEffort", "NotBestEffort"])
    room.quota(scopes=["BestEffort"], pods=1)
    changed = room.patch(f"{QUOTAS}/q", {"spec": {"scopes": ["Terminating"]}}, code=422)
    assert "field is immutable" in changed["message"]
