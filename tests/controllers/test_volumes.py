"""Volumes and claims: bound once, kept while they are used."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from dray.controllers.volumes import Volumes
from dray.runtime.faults import EVERY
from tests.simulated import Place
from tests.workloads import template


def begin(**more: Any) -> Place:
    place = Place(**more)
    place.start("volumes", Volumes.kinds, lambda world: [Volumes(world)])
    return place


def volume(place: Place, name: str, size: str, **spec: Any) -> None:
    body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **spec}
    place.create(PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": body})


def claim(place: Place, name: str, size: str, **spec: Any) -> None:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": "", **spec}
    place.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": {k: v for k, v in body.items() if v is not None}})


def shown(place: Place) -> dict[str, tuple[str, str]]:
    found = place.all(PERSISTENT_VOLUME_CLAIMS)
    return {c["metadata"]["name"]: (c["status"]["phase"], c["spec"].get("volumeName", "")) for c in found}


def test_a_claim_gets_the_smallest_volume_that_fits() -> None:
    place = begin()
    volume(place, "large", "10Gi")
    volume(place, "small", "2Gi")
    claim(place, "c", "1Gi")
    claim(place, "too-much", "20Gi")
    place.pass_time(5)
    assert shown(place) == {"c": ("Bound", "small"), "too-much": ("Pending", "")}
    phases = {v["metadata"]["name"]: v["status"]["phase"] for v in place.all(PERSISTENT_VOLUMES)}
    assert phases == {"large": "Available", "small": "Bound"}


def test_whatever_fails_two_claims_never_have_one_volume() -> None:
    for name, faults in EVERY.items():
        place = begin(seed=3, faults=faults)
        volume(place, "a", "1Gi")
        volume(place, "b", "1Gi")
        for number in range(3):
            claim(place, f"c{number}", "1Gi")
        place.pass_time(400)
        bound = [volume for phase, volume in shown(place).values() if phase == "Bound"]
        assert sorted(bound) == ["a", "b"], name


def test_a_claim_without_class_gets_the_default_one_when_there_is_one() -> None:
    place = begin()
    claim(place, "c", "1Gi", storageClassName=None)
    place.pass_time(2)
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    place.create(STORAGE_CLASSES, {"metadata": {"name": "std", "annotations": annotations}, "provisioner": "x.example/y"})
    place.pass_time(2)
    assert place.get(PERSISTENT_VOLUME_CLAIMS, "c")["spec"]["storageClassName"] == "std"  # type: ignore[index]


def test_a_claim_stays_while_a_pod_uses_it_and_its_volume_while_it_is_bound() -> None:
    place = begin()
    place.start_nodes()
    volume(place, "v", "1Gi")
    claim(place, "c", "1Gi")
    spec = template("p")["spec"] | {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}
    place.create(PODS, {"metadata": {"name": "p"}, "spec": spec})
    place.pass_time(10)
    place.delete(PERSISTENT_VOLUME_CLAIMS, "c")
    place.delete(PERSISTENT_VOLUMES, "v")
    place.pass_time(10)
    assert place.get(PERSISTENT_VOLUME_CLAIMS, "c") is not None
    place.delete(PODS, "p")
    place.pass_time(60)
    assert (place.get(PERSISTENT_VOLUME_CLAIMS, "c"), place.get(PERSISTENT_VOLUMES, "v")) == (None, None)


def test_a_claim_gets_a_volume_of_its_attributes_class_and_is_told_which_it_has() -> None:
    place = begin()
    volume(place, "plain", "1Gi")
    volume(place, "gold", "2Gi", volumeAttributesClassName="gold")
    claim(place, "c", "1Gi", volumeAttributesClassName="gold")
    place.pass_time(5)
    assert shown(place) == {"c": ("Bound", "gold")}
    assert place.get(PERSISTENT_VOLUME_CLAIMS, "c")["status"]["currentVolumeAttributesClassName"] == "gold"  # type: ignore[index]
