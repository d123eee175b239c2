"""The placement exporter: what a kubelet says its pods have becomes annotations, once, and for every pod of the node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from socket import create_server
from typing import Any

import aiohttp
import grpc
import pytest

from dray.api.core import Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.meta import decode as decode_object
from dray.api.times import format_time
from dray.api.wire import WireError, decode, encode
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Write
from dray.nodes.exporter import BURST, Exporter
from dray.nodes.exporting import PodResourcesClient, cpu_list, cpu_zones
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Config, Topology
from dray.numa.observe import as_annotations, observe
from dray.numa.placement import GROUPS_OBSERVED, OBSERVED
from dray.numa.podresources import (
    SERVICE,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    NUMANode,
    PodResources,
    TopologyInfo,
)
from tests.numa.building import GPU
from tests.simulated import Place

GIB = 1 << 30
CPUS = {0: 0, 1: 0, 2: 0, 3: 1}


def near(*zones: int) -> TopologyInfo:
    return TopologyInfo(tuple(map(NUMANode, zones)))


def container(
    *cpus: int, devices: tuple[ContainerDevices, ...] = (), memory: tuple[ContainerMemory, ...] = ()
) -> ContainerResources:
    return ContainerResources("c", devices, cpus, memory)


def seen(*containers: ContainerResources, name: str = "p") -> PodResources:
    return PodResources(name, "default", containers)


class TestWhatIsObserved:
    def test_n01_cpus_devices_and_memory_by_zone(self) -> None:
        gpus = ContainerDevices(GPU, ["GPU-0", "GPU-1"], near(0))
        found = observe(seen(container(0, 1, 2, 3, devices=(gpus,), memory=(ContainerMemory("memory", GIB, near(0)),))), CPUS)
        assert json.loads(as_annotations(found)[OBSERVED] or "") == [
            {"zone": "node-0", "amount": {"cpu": "3", "memory": "1073741824", GPU: "2"}},
            {"zone": "node-1", "amount": {"cpu": "1"}},
        ]

    def test_n02_what_belongs_to_no_single_zone_is_left_out(self) -> None:
        devices = (ContainerDevices(GPU, ["a"]), ContainerDevices(GPU, ["b"], near(0, 1)))
        found = observe(seen(container(99, devices=devices, memory=(ContainerMemory("memory", 0, near(0)),))), CPUS)
        assert as_annotations(found) == {OBSERVED: None, GROUPS_OBSERVED: None}

    def test_n03_containers_are_added_up(self) -> None:
        found = observe(seen(container(0), container(3), container(1)), CPUS)
        assert [json.loads(as_annotations(found)[OBSERVED] or "")[i]["amount"] for i in (0, 1)] == [{"cpu": "2"}, {"cpu": "1"}]

    def test_memory_of_several_zones_is_a_group(self) -> None:
        found = observe(
            seen(container(memory=(ContainerMemory("memory", GIB, near(1, 0)), ContainerMemory("", 5, near(1))))), CPUS
        )
        texts = as_annotations(found, {0: "numa-0", 1: "numa-1"})
        assert json.loads(texts[GROUPS_OBSERVED] or "") == [{"memoryNodes": ["numa-0", "numa-1"], "amount": {"memory": str(GIB)}}]
        assert json.loads(texts[OBSERVED] or "") == [{"zone": "numa-1", "amount": {"memory": "5"}}]


class TestMessagesOnTheWire:
    def test_read_back_what_was_written(self) -> None:
        said = ListPodResourcesResponse((seen(container(0, 300, memory=(ContainerMemory("memory", 1 << 40, near(0, 1)),))),))
        assert decode(ListPodResourcesResponse, encode(said)) == said

    def test_known_bytes(self) -> None:
        # pod_resources { name: "a" namespace: "b" containers { name: "c" cpu_ids: [1, 2] } }, as protoc writes it
        raw = bytes.fromhex("0a0f 0a0161 120162 1a07 0a0163 1a020102".replace(" ", ""))
        assert decode(ListPodResourcesResponse, raw) == ListPodResourcesResponse(
            (PodResources("a", "b", (ContainerResources("c", cpu_ids=(1, 2)),)),)
        )

    def test_unknown_fields_are_passed_over(self) -> None:
        raw = bytes.fromhex("f80101" + "0a060a0161b80101")
        assert decode(ListPodResourcesResponse, raw).pod_resources[0].name == "a"

    @pytest.mark.parametrize("raw", ["0a", "0a05", "0a02ff", "0aff01", "0b", "ff" * 11, "0a030a01ff"])
    def test_broken_bytes_are_an_error_and_nothing_else(self, raw: str) -> None:
        with pytest.raises(WireError):
            decode(ListPodResourcesResponse, bytes.fromhex(raw))


class Asked:
    """An exporter on virtual time whose kubelet answers what the test says."""

    def __init__(self) -> None:
        self.place = Place()
        self.exporter: Exporter | None = None
        self.place.create(NODES, {"metadata": {"name": "n1"}})
        self.place.start("exporter", Exporter.kinds, self._made)

    def _made(self, world: Any) -> list[Exporter]:
        self.exporter = Exporter(world, "n1", CPUS)
        return [self.exporter]

    def pod(self, name: str, node: str = "n1", started: bool = True) -> None:
        spec = {"nodeName": node, "schedulerName": "other", "containers": [{"name": "c", "image": "i"}]}
        self.place.create(PODS, {"metadata": {"name": name}, "spec": spec})
        if started:
            self.start(name)

    def start(self, name: str) -> None:
        status = {"phase": "Running", "startTime": format_time(self.place.shell.clock.now)}
        self.place.patch(PODS, name, {"status": status}, subresource="status")

    def pass_by(self, seconds: float) -> None:
        self.place.shell.run(self.place.shell.elapsed + seconds)

    def says(self, *pods: PodResources) -> None:
        assert self.exporter is not None
        self.pass_by(2)
        self.exporter.see(ListPodResourcesResponse(list(pods)), self.place.shell.clock.now)
        self.pass_by(3)

    def annotation(self, name: str) -> Any:
        found = self.place.get(PODS, name)
        assert found is not None
        text = found["metadata"].get("annotations", {}).get(OBSERVED)
        return text and json.loads(text)

    def version(self, name: str) -> str:
        found = self.place.get(PODS, name)
        assert found is not None
        version: str = found["metadata"]["resourceVersion"]
        return version


@pytest.fixture
def asked() -> Asked:
    return Asked()


class TestTheExporter:
    def test_reports_pods_of_every_scheduler(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0, 3)))
        assert asked.annotation("p") == [{"zone": "node-0", "amount": {"cpu": "1"}}, {"zone": "node-1", "amount": {"cpu": "1"}}]

    def test_n04_says_the_same_only_once(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0)))
        version = asked.version("p")
        asked.says(seen(container(0)))
        assert asked.version("p") == version

    def test_follows_a_change(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0)))
        asked.says(seen(container(3)))
        assert asked.annotation("p") == [{"zone": "node-1", "amount": {"cpu": "1"}}]

    def test_n05_an_annotation_that_was_taken_away_comes_back(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0)))
        asked.place.patch(PODS, "p", {"metadata": {"annotations": {OBSERVED: None}}})
        asked.pass_by(10)
        assert asked.annotation("p")

    def test_takes_back_what_no_longer_holds(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0)))
        asked.says(seen(container()))
        assert asked.annotation("p") is None

    def test_leaves_a_pod_alone_that_the_kubelet_does_not_list(self, asked: Asked) -> None:
        asked.pod("p")
        asked.says(seen(container(0)))
        asked.says()
        assert asked.annotation("p")

    def test_leaves_pods_of_other_nodes_alone(self, asked: Asked) -> None:
        asked.pod("p", node="n2")
        asked.says(seen(container(0)))
        assert asked.annotation("p") is None

    def test_s27_a_new_pod_with_an_old_name_does_not_inherit_its_zones(self, asked: Asked) -> None:
        asked.pod("p", started=False)
        asked.says(seen(container(0)))  # the kubelet still speaks of the pod that had the name before
        asked.start("p")
        asked.pass_by(5)
        assert asked.annotation("p") is None
        asked.says(seen(container(3)))
        assert asked.annotation("p") == [{"zone": "node-1", "amount": {"cpu": "1"}}]

    def test_zones_have_the_names_that_the_topology_object_gives_them(self, asked: Asked) -> None:
        zones = [{"name": "numa0", "type": "Node"}]
        asked.place.create(NODE_RESOURCE_TOPOLOGIES, {"metadata": {"name": "n1"}, "zones": zones})
        asked.pod("p")
        asked.says(seen(container(0)))
        assert asked.annotation("p") == [{"zone": "numa0", "amount": {"cpu": "1"}}]

    def test_writes_are_limited_in_rate(self, asked: Asked) -> None:
        names = [f"p{number}" for number in range(BURST + 40)]
        for name in names:
            asked.pod(name)
        assert asked.exporter is not None
        asked.pass_by(2)
        asked.exporter.see(
            ListPodResourcesResponse([seen(container(0), name=name) for name in names]), asked.place.shell.clock.now
        )
        asked.pass_by(1.2)
        assert 0 < sum(asked.annotation(name) is None for name in names) <= 40
        asked.pass_by(10)
        assert all(asked.annotation(name) for name in names)

    def test_the_kubelet_is_asked_soon_after_a_pod_changed_and_at_most_once_a_second(self, asked: Asked) -> None:
        asked.says()
        assert asked.exporter is not None
        now = asked.place.shell.clock.now
        assert asked.exporter.due > now
        asked.pod("p")
        asked.pass_by(1)
        assert asked.exporter.due <= asked.place.shell.clock.now
        asked.says()
        asked.exporter.changed(asked.place.shell.clock.now - 2.5)
        assert asked.exporter.due >= asked.place.shell.clock.now - 3


class TestTheMachine:
    def test_lists_of_cpus(self) -> None:
        assert cpu_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
        assert cpu_list("\n") == []
        with pytest.raises(ValueError, match="is not a range"):
            cpu_list("0-x")

    def test_cpus_by_zone(self, tmp_path: Path) -> None:
        for name, text in {"node0": "0-1", "node1": "2-3", "node12": ""}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "cpulist").write_text(text)
        assert cpu_zones(tmp_path) == {0: 0, 1: 0, 2: 1, 3: 1}


# ------------------------------------------------------------------------------------- the command, on a socket and a server


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[tuple[Topology, Path, Path]]:
    """A simulated kubelet that serves podresources on a unix socket, and a description of its machine."""
    machine = Topology([MachineZone(n, 4, 0, {"memory": 8}, {}, {GPU: 2}) for n in (0, 1)], Config("restricted", "pod"))
    server = grpc.aio.server()

    async def answer(request: Any, context: Any) -> ListPodResourcesResponse:
        return machine.podresources()

    handler = grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=lambda raw: decode(ListPodResourcesRequest, raw), response_serializer=encode
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"List": handler}),))
    socket = tmp_path / "kubelet.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    sysfs = tmp_path / "node"
    for name, text in machine.cpu_lists().items():
        (sysfs / name).parent.mkdir(parents=True, exist_ok=True)
        (sysfs / name).write_text(text)
    yield machine, socket, sysfs
    await server.stop(None)


async def test_the_client_reads_a_kubelets_socket(kubelet: tuple[Topology, Path, Path]) -> None:
    machine, socket, _ = kubelet
    machine.admit(wants(cpu="2", memory="4"))
    client = PodResourcesClient(socket)
    try:
        found = await client.list()
    finally:
        await client.close()
    assert found == machine.podresources()
    assert found.pod_resources[0].containers[0].cpu_ids == (0, 1)
    assert encode(ListPodResourcesRequest()) == b""


def wants(**amounts: str) -> Pod:
    limits = {"requests": amounts, "limits": amounts}
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": limits}]},
    }
    return decode_object(Pod, raw)


async def test_the_command_writes_what_the_kubelet_did(kubelet: tuple[Topology, Path, Path], tmp_path: Path) -> None:
    machine, socket, sysfs = kubelet
    server = ApiServer(None)
    await server.start()
    config = tmp_path / "kubeconfig"
    server.write_kubeconfig(config)
    cluster = Embedded(server)
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    await cluster.write(Write("create", PODS, "default", "p", body))
    status = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    await cluster.write(Write("patch", PODS, "default", "p", status, subresource="status"))
    machine.admit(wants(cpu="6", memory="12"))
    arguments = ["--kubeconfig", str(config), "--node", "n1", "--podresources", str(socket), "--sysfs", str(sysfs)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dray", "exporter", *arguments, env=os.environ)
    try:
        annotations = await asyncio.wait_for(written(cluster), 60)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await cluster.close()
        await server.stop()
    assert json.loads(annotations[OBSERVED]) == [
        {"zone": "node-0", "amount": {"cpu": "4"}},
        {"zone": "node-1", "amount": {"cpu": "2"}},
    ]
    assert json.loads(annotations[GROUPS_OBSERVED]) == [{"memoryNodes": ["node-0", "node-1"], "amount": {"memory": "12"}}]


async def written(cluster: Embedded) -> dict[str, str]:
    while True:
        found = await cluster.get(PODS, "default", "p")
        if OBSERVED in (annotations := found["metadata"].get("annotations", {})):
            return dict(annotations)
        await asyncio.sleep(0.1)


async def test_who_hears_nothing_of_its_kubelet_is_not_ready(kubelet: tuple[Topology, Path, Path], tmp_path: Path) -> None:
    _, socket, sysfs = kubelet
    server = ApiServer(None)
    await server.start()
    config, moved = tmp_path / "kubeconfig", tmp_path / "moved.sock"
    server.write_kubeconfig(config)
    with closing(create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    arguments = ["--kubeconfig", str(config), "--node", "n1", "--podresources", str(moved), "--sysfs", str(sysfs)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dray", "exporter", *arguments, "--serve", address)
    try:
        async with asyncio.timeout(60):
            assert "[-]kubelet failed: no answer from the kubelet" in await ready(address, 500)
            moved.symlink_to(socket)
            assert "[+]kubelet ok" in await ready(address, 200)
    finally:
        process.kill()
        await process.wait()
        await server.stop()


async def ready(address: str, status: int) -> str:
    """What /readyz says when it answers so, every kind being listed."""
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientConnectionError):
                async with session.get(f"http://{address}/readyz?verbose") as answer:
                    text = await answer.text()
                    if answer.status == status and "[+]informer-sync ok" in text:
                        return text
            await asyncio.sleep(0.1)
