"""Exporters are told which pods have which devices, CPUs and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dray.api.core import Node, Pod
from dray.api.kinds import PODS
from dray.api.resource import ResourceClaim
from dray.nodes.admission import Rejection
from dray.nodes.kubelet import Kubelets
from dray.nodes.podresources import AT_ONCE, SOCKET, PodResources, serve
from dray.nodes.sockets import ask
from dray.numa import podresources as m
from tests.nodes.laboratory import NODE, Laboratory

SERVICE = f"/{m.SERVICE}/"


class Whole:
    """Hands CPUs 2 and 3 and a zone's memory to every container named ``c``."""

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        return None

    def started(self, node: str, pod: Pod) -> None:
        pass

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        pass

    def release(self, node: str, uid: str) -> None:
        pass

    def exclusive(self, node: str, uid: str) -> Mapping[str, m.ContainerResources]:
        memory = m.ContainerMemory("memory", 1 << 30, m.TopologyInfo((m.NUMANode(1),)))
        return {"c": m.ContainerResources("c", (m.ContainerDevices("vendor.example/nic", ("nic-0",)),), (2, 3), (memory,))}

    def allocatable(self, node: str) -> m.AllocatableResourcesResponse:
        return m.AllocatableResourcesResponse((), tuple(range(4)))


def kubelets(lab: Laboratory) -> Kubelets:
    (found,) = [each for each in lab.place.shell.hosts["nodes"].deciders if isinstance(each, Kubelets)]
    return found


def started(**options: object) -> tuple[Laboratory, PodResources]:
    lab = Laboratory(**options)  # type: ignore[arg-type]
    lab.claim("pair", "gpu-0", "gpu-1")
    used = {"claims": [{"name": "pair", "request": "gpu"}]}
    containers = [{"name": "c", "image": "i", "resources": used}, {"name": "other", "image": "i"}]
    init = [{"name": "once", "image": "i"}, {"name": "sidecar", "image": "i", "restartPolicy": "Always"}]
    lab.pod("p", "pair", containers=containers, initContainers=init)
    lab.pod("done", annotations={"dray.dev/finishes-after": "1s"})
    lab.run(10)
    return lab, PodResources(NODE, kubelets(lab))


def test_pods_that_have_not_ended_are_listed_with_all_devices_of_the_claims_of_each_container() -> None:
    _, resources = started()
    (pod,) = resources.list(m.ListPodResourcesRequest()).pod_resources
    assert (pod.name, pod.namespace, [c.name for c in pod.containers]) == ("p", "default", ["sidecar", "c", "other"])
    claimed = {c.name: c.dynamic_resources for c in pod.containers}
    (dynamic,) = claimed["c"]
    assert (dynamic.claim_name, dynamic.claim_namespace) == ("pair", "default")
    shown = [(each.driver_name, each.pool_name, each.device_name, len(each.cdi_devices)) for each in dynamic.claim_resources]
    assert shown == [("gpu.dray.dev", NODE, "gpu-0", 1), ("gpu.dray.dev", NODE, "gpu-1", 1)]
    assert claimed["other"] == claimed["sidecar"] == ()


def test_extended_resource_claims_show_for_each_container_of_a_mapping() -> None:
    lab = Laboratory()
    lab.claim("special", "gpu-0")
    asks = {"limits": {"dray.dev/gpu": "1"}}
    uid = lab.pod("p", containers=[{"name": "c", "image": "i", "resources": asks}, {"name": "other", "image": "i"}])
    lab.reserve("special", "p", uid)
    mapping = {"containerName": "c", "resourceName": "dray.dev/gpu", "requestName": "gpu"}
    extended = {"resourceClaimName": "special", "requestMappings": [mapping]}
    lab.place.patch(PODS, "p", {"status": {"extendedResourceClaimStatus": extended}}, subresource="status")
    lab.run(5)
    (pod,) = PodResources(NODE, kubelets(lab)).list(m.ListPodResourcesRequest()).pod_resources
    assert [[each.claim_name for each in c.dynamic_resources] for c in pod.containers] == [["special"], []]


def test_cpus_and_memory_are_those_that_admission_handed_out() -> None:
    _, resources = started(admission=Whole())
    (pod,) = resources.list(m.ListPodResourcesRequest()).pod_resources
    own = {c.name: c for c in pod.containers}["c"]
    assert own.cpu_ids == (2, 3)
    assert own.memory == (m.ContainerMemory("memory", 1 << 30, m.TopologyInfo((m.NUMANode(1),))),)
    assert own.devices == (m.ContainerDevices("vendor.example/nic", ("nic-0",)),)
    assert resources.allocatable(m.AllocatableResourcesRequest()).cpu_ids == (0, 1, 2, 3)


async def test_the_socket_answers_like_a_kubelet() -> None:
    _, resources = started()
    with tempfile.TemporaryDirectory(prefix="dray", dir="/tmp") as directory:
        time = [0.0]
        server = await serve(Path(directory), resources, lambda: time[0])
        async with grpc.aio.insecure_channel(f"unix:{directory}/{SOCKET}") as channel:

            async def get(name: str) -> m.GetPodResourcesResponse:
                request = m.GetPodResourcesRequest(name, "default")
                return await ask(channel, SERVICE + "Get", request, m.GetPodResourcesResponse, 10)

            found = (await get("p")).pod_resources
            assert found is not None
            assert found.name == "p"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await get("none")
            assert (refused.value.code(), refused.value.details()) == (
                grpc.StatusCode.UNKNOWN,
                "pod none in namespace default not found",
            )
            for _ in range(int(AT_ONCE) - 2):
                await get("p")
            with pytest.raises(grpc.aio.AioRpcError) as limited:
                await get("p")
            assert (limited.value.code(), limited.value.details()) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "rejected by rate limit",
            )
            time[0] += 0.011
            await get("p")
        await server.stop(0)
