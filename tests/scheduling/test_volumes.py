"""Persistent volumes decide where pods can go, and are told where pods went."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.core import PersistentVolume
from dray.api.meta import decode
from dray.books.journal import Books
from dray.books.volumes import VolumeAccount
from dray.explain.why import why
from dray.scheduling.config import Config, Profile
from dray.scheduling.plugins.in_tree import Migration
from dray.testing import VirtualCluster, assert_sound, device_class, node_with_devices
from dray.testing import claim as claim_of_devices
from dray.testing import node as made_node
from dray.testing import pod as made_pod
from tests.volumes import local_claim, local_class, local_volume

ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"

DONE = {"pv.kubernetes.io/bind-completed": "yes"}


@pytest.fixture
def zones(sim: Sim) -> Sim:
    sim.add_node("a", labels={ZONE: "a"})
    sim.add_node("b", labels={ZONE: "b"})
    return sim


def using(*claims: str) -> list[dict[str, Any]]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def claim(sim: Sim, name: str, cls: str = "", volume: str = "", modes: tuple[str, ...] = ("ReadWriteOnce",)) -> dict[str, Any]:
    spec = {
        "storageClassName": cls,
        "volumeName": volume,
        "accessModes": list(modes),
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": "default", "annotations": DONE if volume else {}}
    return sim.api.put(kinds.PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


def volume(sim: Sim, name: str, zone: str = "", cls: str = "", labels: dict[str, str] | None = None, **spec: Any) -> None:
    if zone:
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    spec |= {"storageClassName": cls, "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}
    status = {"phase": spec.pop("phase", "Available")}
    sim.api.put(kinds.PERSISTENT_VOLUMES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})


def storage_class(sim: Sim, name: str, provisioner: str = "csi.example.com", **extra: Any) -> None:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **extra}
    sim.api.put(kinds.STORAGE_CLASSES, body)


def bind(sim: Sim, name: str, volume_name: str) -> None:
    """What the volume controller does."""
    found = sim.api.objects[kinds.PERSISTENT_VOLUME_CLAIMS][f"default/{name}"]
    found["spec"]["volumeName"] = volume_name
    found["metadata"]["annotations"] = {**found["metadata"].get("annotations", {}), **DONE}
    sim.api.put(kinds.PERSISTENT_VOLUME_CLAIMS, found)


def test_a_volume_that_is_not_available_yet_is_not_taken(zones: Sim) -> None:
    storage_class(zones, "local", provisioner="kubernetes.io/no-provisioner")
    volume(zones, "pv", zone="a", cls="local", phase="Pending")
    claim(zones, "c", cls="local")
    zones.add_pod("p", volumes=using("c"))
    zones.settle(2)
    assert "claimRef" not in zones.api.objects[kinds.PERSISTENT_VOLUMES]["pv"]["spec"]


def test_a_missing_volume_claim_is_noticed_whichever_volume_plugin_is_on() -> None:
    for plugin in ("VolumeRestrictions", "VolumeZone"):
        sim = Sim(Config((Profile(filters=("NodeResourcesFit", plugin)),)))
        sim.add_node("n1")
        sim.add_pod("p", volumes=using("missing"))
        sim.settle(2)
        assert sim.node_of("p") == ""
        assert "default/missing" in sim.condition("p")["message"]


@pytest.mark.parametrize("plugin", ["VolumeRestrictions", "VolumeZone", "VolumeBinding", "NodeVolumeLimits"])
@pytest.mark.parametrize(
    ("made", "says"), [({"volume": "gone"}, "volume gone does not exist"), ({"cls": "none"}, "storage class none does not exist")]
)
def test_a_missing_volume_or_class_is_noticed_whichever_volume_plugin_is_on(plugin: str, made: dict[str, str], says: str) -> None:
    sim = Sim(Config((Profile(filters=("NodeResourcesFit", plugin)),)))
    sim.add_node("n1")
    claim(sim, "data", **made)
    sim.add_pod("p", volumes=using("data"))
    sim.settle(2)
    assert sim.node_of("p") == ""
    assert says in sim.condition("p")["message"]


def test_a_claim_that_names_a_volume_is_bound_only_when_that_is_completed(zones: Sim) -> None:
    volume(zones, "v", "b")
    found = claim(zones, "data", volume="v")
    found["metadata"]["annotations"] = {}
    found["status"]["phase"] = "Bound"
    zones.api.put(kinds.PERSISTENT_VOLUME_CLAIMS, found)
    zones.add_pod("p", volumes=using("data"))
    zones.settle(2)
    assert zones.node_of("p") == ""
    bind(zones, "data", "v")
    zones.settle(15)
    assert zones.node_of("p") == "b"


def test_a_bound_volume_decides_the_node(zones: Sim) -> None:
    volume(zones, "v", "b")
    claim(zones, "data", volume="v")
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert zones.node_of("p") == "b"


def test_a_pod_whose_volume_comes_to_nothing_may_go_to_a_device_plugin(sim: Sim) -> None:
    """No server lets go of the claim that its status names, so it is told that last."""
    resource = "example.com/gpu"
    sim.add_class(extended=resource)
    sim.add_node("a", labels={ZONE: "a"})
    sim.add_slice("a", 1)
    storage_class(sim, "fast")
    claim(sim, "data", cls="fast")
    asks = {"requests": {resource: "1"}, "limits": {resource: "1"}}
    sim.add_pod("p", volumes=using("data"), containers=[{"name": "c", "resources": asks}])
    sim.settle(5)
    assert sim.api.objects[kinds.PERSISTENT_VOLUME_CLAIMS]["default/data"]["metadata"]["annotations"] == {SELECTED: "a"}
    assert sim.pod("p")["status"]["nominatedNodeName"] == "a"
    sim.add_node("b", labels={ZONE: "b"}, resources={resource: "1"})
    volume(sim, "v", "b", cls="fast")
    bind(sim, "data", "v")
    sim.settle(15)
    assert sim.node_of("p") == "b"


def test_who_waits_for_a_volume_that_is_being_made_is_told_so_and_whom_to_look_at(sim: Sim) -> None:
    """It read that a scheduler had to be started."""
    sim.add_node("a")
    storage_class(sim, "fast")
    claim(sim, "data", cls="fast")
    sim.add_pod("p", volumes=using("data"))
    sim.settle(5)
    told = why(sim.world, sim.world.get(kinds.PODS, "default/p"), now=sim.now)
    assert told.verdict == "waiting"
    assert told.summary == "pod default/p waits for volume claim default/data, to be provisioned by csi.example.com for node a."
    assert told.fixes == [
        "see what its provisioner says of the volume claim: kubectl describe pvc data -n default",
        "see whether the provisioner csi.example.com runs",
    ]
    volume(sim, "v", cls="fast")
    bind(sim, "data", "v")
    sim.settle(5)
    assert sim.node_of("p") == "a"


def test_zone_labels_of_a_volume_decide_too(zones: Sim) -> None:
    volume(zones, "v", labels={ZONE: "b"})
    claim(zones, "data", volume="v")
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert zones.node_of("p") == "b"


def test_a_missing_claim_is_named_and_waited_for(zones: Sim) -> None:
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert "default/data" in zones.condition("p")["message"]
    volume(zones, "v", "a")
    claim(zones, "data", volume="v")
    zones.settle()
    assert zones.node_of("p") == "a"


def test_a_claim_that_is_bound_by_others_is_waited_for(zones: Sim) -> None:
    claim(zones, "data", cls="immediate")
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert zones.node_of("p") == ""
    volume(zones, "v", "b")
    bind(zones, "data", "v")
    zones.settle()
    assert zones.node_of("p") == "b"


def test_a_volume_is_made_where_the_pod_goes(zones: Sim) -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    storage_class(zones, "fast", allowedTopologies=topologies)
    claim(zones, "data", cls="fast")
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert zones.node_of("p") == ""
    found = zones.api.objects[kinds.PERSISTENT_VOLUME_CLAIMS]["default/data"]
    assert found["metadata"]["annotations"] == {SELECTED: "b"}
    volume(zones, "v", "b", "fast")
    bind(zones, "data", "v")
    zones.settle()
    assert zones.node_of("p") == "b"


def test_a_volume_that_exists_is_taken_before_one_is_made(zones: Sim) -> None:
    storage_class(zones, "local", "kubernetes.io/no-provisioner")
    volume(zones, "v", "b", "local")
    claim(zones, "data", cls="local")
    zones.add_pod("p", volumes=using("data"))
    zones.settle()
    assert zones.api.objects[kinds.PERSISTENT_VOLUMES]["v"]["spec"]["claimRef"]["name"] == "data"
    bind(zones, "data", "v")
    zones.settle()
    assert zones.node_of("p") == "b"


def test_a_volume_for_one_pod_is_for_one_pod(zones: Sim) -> None:
    volume(zones, "v")
    claim(zones, "data", volume="v", modes=("ReadWriteOncePod",))
    for name in ("p", "q"):
        zones.add_pod(name, volumes=using("data"))
    zones.settle()
    assert sorted(bool(zones.node_of(name)) for name in ("p", "q")) == [False, True]
    winner, loser = ("p", "q") if zones.node_of("p") else ("q", "p")
    zones.remove(kinds.PODS, f"default/{winner}")
    zones.settle(2)
    assert zones.node_of(loser) != ""


def test_a_node_attaches_only_so_many_volumes(sim: Sim) -> None:
    sim.add_node("n")
    driver = {"name": "csi.example.com", "nodeID": "n", "allocatable": {"count": 1}}
    sim.api.put(kinds.CSI_NODES, {"metadata": {"name": "n"}, "spec": {"drivers": [driver]}})
    for name in ("x", "y"):
        volume(sim, name, csi={"driver": "csi.example.com", "volumeHandle": name})
        claim(sim, name, volume=name)
        sim.add_pod(name, volumes=using(name))
    sim.settle()
    assert [sim.node_of(name) for name in ("x", "y")] == ["n", ""]
    assert "volumes" in sim.condition("y")["message"]


def test_a_volume_that_is_never_made_gives_the_node_back(zones: Sim) -> None:
    storage_class(zones, "fast")
    claim(zones, "data", cls="fast")
    zones.add_pod("p", volumes=using("data"))
    zones.settle(590)
    assert zones.scheduler.binder.in_flight == 1
    zones.settle(11)
    assert "not bound" in zones.condition("p")["message"]


def test_a_node_that_may_attach_more_wakes_the_pod_that_waits_for_that(sim: Sim) -> None:
    def limit(count: int) -> None:
        known = sim.api.objects[kinds.CSI_NODES].get("n1", {"metadata": {"name": "n1"}})
        drivers = [{"name": "csi.example.com", "nodeID": "n1", "allocatable": {"count": count}}]
        sim.api.put(kinds.CSI_NODES, {"metadata": known["metadata"], "spec": {"drivers": drivers}})

    sim.add_node("n1")
    limit(1)
    for name in ("a", "b"):
        volume(sim, f"pv-{name}", csi={"driver": "csi.example.com", "volumeHandle": name})
        claim(sim, name, volume=f"pv-{name}")
        sim.add_pod(name, volumes=using(name))
    sim.settle()
    assert (sim.node_of("a"), sim.node_of("b")) == ("n1", "")
    limit(2)
    sim.settle(20)
    assert sim.node_of("b") == "n1"


def test_two_pods_decided_at_once_do_not_get_the_same_volume(zones: Sim) -> None:
    storage_class(zones, "local", provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")
    for number in range(2):
        volume(zones, f"pv-{number}", zone="a", cls="local")
        claim(zones, f"c{number}", cls="local")
        zones.add_pod(f"p{number}", volumes=using(f"c{number}"))
    zones.step()
    owners = [pv["spec"].get("claimRef", {}).get("name") for pv in zones.api.objects[kinds.PERSISTENT_VOLUMES].values()]
    assert sorted(owners) == ["c0", "c1"]


def test_two_claims_of_one_pod_get_two_volumes(zones: Sim) -> None:
    storage_class(zones, "local", provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")
    for number in range(2):
        volume(zones, f"pv-{number}", zone="a", cls="local")
        claim(zones, f"c{number}", cls="local")
    zones.add_pod("p", volumes=using("c0", "c1"))
    zones.add_pod("late", volumes=using("c0"))
    zones.step()
    owners = [pv["spec"].get("claimRef", {}).get("name") for pv in zones.api.objects[kinds.PERSISTENT_VOLUMES].values()]
    assert sorted(owners) == ["c0", "c1"]


# ------------------------------------------------------------------------------------------------- how many can be attached


def attach_limit(sim: Sim, driver: str, count: int = 1, migrated: str = "") -> None:
    """A node that can have so many volumes of the driver."""
    sim.add_node("n")
    metadata = {"name": "n", "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated}}
    drivers = [{"name": driver, "nodeID": "n", "allocatable": {"count": count}}]
    sim.api.put(kinds.CSI_NODES, {"metadata": metadata, "spec": {"drivers": drivers}})


def attachment(sim: Sim, name: str, driver: str, source: dict[str, Any], node: str = "n") -> None:
    spec = {"attacher": driver, "nodeName": node, "source": source}
    sim.api.put(kinds.VOLUME_ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})


def test_an_attachment_without_a_pod_takes_a_place_until_it_is_gone(sim: Sim) -> None:
    attach_limit(sim, "csi.example.com")
    attachment(sim, "stale", "csi.example.com", {"persistentVolumeName": "gone"})
    attachment(sim, "elsewhere", "csi.example.com", {"persistentVolumeName": "other"}, node="m")
    attachment(sim, "other-driver", "other.example.com", {"persistentVolumeName": "x"})
    volume(sim, "x", csi={"driver": "csi.example.com", "volumeHandle": "x"})
    claim(sim, "x", volume="x")
    sim.add_pod("p", volumes=using("x"))
    sim.settle()
    assert sim.node_of("p") == ""
    assert "cannot attach more volumes of csi.example.com (at most 1)" in sim.condition("p")["message"]
    sim.remove(kinds.VOLUME_ATTACHMENTS, "stale")
    sim.settle(2)
    assert sim.node_of("p") == "n"


def test_an_attachment_of_the_pods_own_volume_is_not_counted_twice(sim: Sim) -> None:
    attach_limit(sim, "csi.example.com")
    volume(sim, "x", csi={"driver": "csi.example.com", "volumeHandle": "x"})
    claim(sim, "x", volume="x")
    attachment(sim, "mine", "csi.example.com", {"persistentVolumeName": "x"})
    sim.add_pod("p", volumes=using("x"))
    sim.settle()
    assert sim.node_of("p") == "n"


IN_TREE = [
    ("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID", ""),
    ("pd.csi.storage.gke.io", "gcePersistentDisk", "pdName", ""),
    ("disk.csi.azure.com", "azureDisk", "diskURI", ""),
    ("cinder.csi.openstack.org", "cinder", "volumeID", ""),
    ("csi.vsphere.vmware.com", "vsphereVolume", "volumePath", "kubernetes.io/vsphere-volume"),
    ("pxd.portworx.com", "portworxVolume", "volumeID", "kubernetes.io/portworx-volume"),
]


@pytest.mark.parametrize(("driver", "field", "name", "plugin"), IN_TREE)
def test_an_inline_volume_counts_for_the_driver_that_attaches_it(
    sim: Sim, driver: str, field: str, name: str, plugin: str
) -> None:
    attach_limit(sim, driver, migrated=plugin)
    for disk in ("a", "b"):
        sim.add_pod(disk, volumes=[{"name": "v", field: {name: disk, "readOnly": True}}])
    sim.settle()
    assert [sim.node_of("a"), sim.node_of("b")] == ["n", ""]
    assert f"cannot attach more volumes of {driver}" in sim.condition("b")["message"]


def test_a_plugin_that_the_node_does_not_name_as_migrated_counts_for_nothing(sim: Sim) -> None:
    attach_limit(sim, "pxd.portworx.com")
    for disk in ("a", "b"):
        sim.add_pod(disk, volumes=[{"name": "v", "portworxVolume": {"volumeID": disk}}])
    sim.settle()
    assert [sim.node_of("a"), sim.node_of("b")] == ["n", "n"]


def test_a_disk_has_one_name_wherever_it_is_named(sim: Sim) -> None:
    attach_limit(sim, "ebs.csi.aws.com")
    attachment(sim, "one", "ebs.csi.aws.com", {"inlineVolumeSpec": {"awsElasticBlockStore": {"volumeID": "vol-1"}}})
    volume(sim, "pv", awsElasticBlockStore={"volumeID": "aws://us-east-1a/vol-1"})
    claim(sim, "data", volume="pv")
    sim.add_pod("p", volumes=using("data"))
    sim.settle()
    assert sim.node_of("p") == "n"
    sim.add_pod("q", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-2"}}])
    sim.settle()
    assert sim.node_of("q") == ""


@pytest.mark.parametrize(
    ("zone", "place"), [("", "zones/UNSPECIFIED"), ("eu-1-b", "zones/eu-1-b"), ("eu-1-b__eu-1-c", "regions/eu-1")]
)
def test_a_disk_of_google_is_named_with_its_place(zone: str, place: str) -> None:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    found = decode(PersistentVolume, {"metadata": {"labels": labels}, "spec": {"gcePersistentDisk": {"pdName": "d"}}})
    assert Migration(None).persistent(found) == ("pd.csi.storage.gke.io", f"projects/UNSPECIFIED/{place}/disks/d")


def test_claims_of_an_in_tree_class_count_for_the_driver_that_makes_their_volumes(sim: Sim) -> None:
    attach_limit(sim, "ebs.csi.aws.com")
    storage_class(sim, "gp2", provisioner="kubernetes.io/aws-ebs")
    for name in ("a", "b"):
        claim(sim, name, cls="gp2")
        sim.add_pod(name, volumes=using(name))
    sim.settle()
    assert "cannot attach more volumes of ebs.csi.aws.com" in sim.condition("b")["message"]


# ------------------------------------------------------------------------------------------- pods that share a claim


def local_volumes(*names: str) -> list[dict[str, Any]]:
    """A class whose claims wait for their first consumer, and a volume on each node ``n`` and its number."""
    return [local_class(), *(local_volume(name, f"n{number}") for number, name in enumerate(names))]


def running(cluster: VirtualCluster) -> dict[str, str]:
    pods = cluster.all(kinds.PODS)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods if each["status"]["phase"] == "Running"}


@pytest.mark.parametrize("seed", range(4))
def test_pods_that_share_a_claim_with_devices_of_their_own_all_start(seed: int) -> None:
    """One of them gives the claim its volume; the others' writes of the same are refused when they are about to be bound."""
    cluster = VirtualCluster(seed=seed)
    cluster.start_all()
    cluster.create(device_class("gpu", extendedResourceName="example.com/gpu"))
    cluster.create(*node_with_devices("n0", 4, cpu="16"))
    cluster.create(*local_volumes("v0"), local_claim("data"))
    for number in range(4):
        cluster.create(made_pod(f"p{number}", limits={"example.com/gpu": "1"}, volumes=using("data")))
    cluster.run(30)
    assert running(cluster) == {f"p{number}": "n0" for number in range(4)}
    assert_sound(cluster, strict=True)


def test_pods_that_share_a_claim_go_where_its_volume_is() -> None:
    """Also those that are decided on before anybody can see which volume that is."""
    cluster = VirtualCluster()
    cluster.start_all()
    cluster.create(*(made_node(f"n{number}", cpu="2") for number in range(2)))
    cluster.create(*local_volumes("v0", "v1"), local_claim("data"))
    cluster.create(*(made_pod(f"p{number}", requests={"cpu": "1500m"}, volumes=using("data")) for number in range(2)))
    cluster.run(30)
    assert len(running(cluster)) == 1
    assert sum("claimRef" in each["spec"] for each in cluster.all(kinds.PERSISTENT_VOLUMES)) == 1
    waiting = next(name for name in ("p0", "p1") if name not in running(cluster))
    assert cluster.why(waiting).verdict == "unschedulable"


def test_a_volume_claim_and_a_device_claim_of_one_name_are_two() -> None:
    """Devices that are written are no volume that is bound."""
    cluster = VirtualCluster()
    cluster.start_scheduler()
    cluster.start_nodes()
    cluster.create(device_class("gpu"), *node_with_devices("n0", 1), *local_volumes("v0"))
    cluster.create(local_claim("data"), claim_of_devices("data"))
    cluster.patch(kinds.PERSISTENT_VOLUMES, "v0", {"status": {"phase": "Available"}}, subresource="status")
    cluster.create(made_pod("p", claims=["data"], volumes=using("data")))
    cluster.run(30)
    assert "claimRef" in cluster.all(kinds.PERSISTENT_VOLUMES)[0]["spec"]
    assert "nodeName" not in cluster.all(kinds.PODS)[0]["spec"], "nobody bound the volume"


def test_what_pods_share_is_taken_until_the_last_gives_it_back() -> None:
    account = VolumeAccount(books := Books())
    account.take("a", (("default/data", "v0"),))
    before = account.snapshot()
    with books.trial():
        account.take("b", (("default/data", "v0"),))
    assert account.snapshot() == before
    account.take("b", (("default/data", "v0"),))
    account.give_back("a")
    assert (account.claim_of("v0"), account.volume_of("default/data")) == ("default/data", "v0")
    account.give_back("b")
    assert (account.claim_of("v0"), account.volume_of("default/data")) == ("", "")
