"""What every cluster behind the port does alike."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dray.api.kinds import LEASES, NODES, PODS, Kind
from dray.cluster.port import Cluster, Conflict, Invalid, NotFound, WatchEvent, Write

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


async def create(port: Cluster, namespace: str, name: str, **data: str) -> dict[str, Any]:
    return await port.write(Write("create", CONFIG_MAPS, namespace, name, config_map(name, **data)))


async def collect(port: Cluster, namespace: str, version: str, count: int) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with asyncio.timeout(20):
        async for event in port.watch(CONFIG_MAPS, version, namespace=namespace):
            found.append(event)
            if len(found) == count:
                break
    return found


def names(raws: list[bytes]) -> list[str]:
    return sorted(msgspec.json.decode(raw)["metadata"]["name"] for raw in raws)


async def test_what_is_created_is_listed_and_got(port: Cluster, namespace: str) -> None:
    made = await create(port, namespace, "one", a="1")
    raws, version = await port.list(CONFIG_MAPS, namespace=namespace)
    assert "one" in names(raws)
    assert int(version) >= int(made["metadata"]["resourceVersion"])
    assert (await port.get(CONFIG_MAPS, namespace, "one"))["data"] == {"a": "1"}


async def test_a_watch_gives_each_change_in_order_from_where_it_was_asked(port: Cluster, namespace: str) -> None:
    version = (await create(port, namespace, "one"))["metadata"]["resourceVersion"]
    await port.write(Write("patch", CONFIG_MAPS, namespace, "one", {"data": {"a": "2"}}))
    await create(port, namespace, "two")
    await port.write(Write("delete", CONFIG_MAPS, namespace, "one"))
    events = await collect(port, namespace, version, 3)
    seen = [(event.type, names([event.raw])[0]) for event in events]
    assert seen == [("MODIFIED", "one"), ("ADDED", "two"), ("DELETED", "one")]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(versions)


async def test_a_watch_without_a_position_starts_with_everything_and_says_when_it_is_complete(
    port: Cluster, namespace: str
) -> None:
    await create(port, namespace, "one")
    await create(port, namespace, "two")
    async with asyncio.timeout(20):
        added = []
        async for event in port.watch(CONFIG_MAPS, "", namespace=namespace):
            if event.synced:
                break
            added.append(event)
    assert {"one", "two"} <= set(names([event.raw for event in added]))


async def test_a_patch_with_another_resource_version_conflicts(port: Cluster, namespace: str) -> None:
    made = await create(port, namespace, "one")
    version = made["metadata"]["resourceVersion"]
    write = Write("patch", CONFIG_MAPS, namespace, "one", {"data": {"a": "1"}}, resource_version=version)
    await port.write(write)
    with pytest.raises(Conflict):
        await port.write(msgspec.structs.replace(write, body={"data": {"a": "2"}}))


@pytest.mark.parametrize("patch", ["merge", "strategic", "json"])
async def test_a_patch_of_any_type_with_another_uid_conflicts(port: Cluster, namespace: str, patch: Any) -> None:
    await create(port, namespace, "one", a="1")
    body: Any = [{"op": "add", "path": "/data/b", "value": "2"}] if patch == "json" else {"data": {"b": "2"}}
    write = Write("patch", CONFIG_MAPS, namespace, "one", body, patch=patch, uid="00000000-0000-0000-0000-000000000001")
    with pytest.raises(Conflict):
        await port.write(write)
    assert (await port.write(msgspec.structs.replace(write, uid="")))["data"] == {"a": "1", "b": "2"}


async def test_an_apply_patch_creates_and_changes(port: Cluster, namespace: str) -> None:
    write = Write("patch", CONFIG_MAPS, namespace, "applied", config_map("applied", a="1"), patch="apply")
    await port.write(write)
    changed = await port.write(msgspec.structs.replace(write, body=config_map("applied", b="2")))
    assert changed["data"] == {"b": "2"}


async def test_an_update_replaces_and_needs_the_version_it_read(port: Cluster, namespace: str) -> None:
    made = await create(port, namespace, "one", a="1")
    body = {**made, "data": {"b": "2"}}
    stale = made["metadata"]["resourceVersion"]
    answer = await port.write(Write("update", CONFIG_MAPS, namespace, "one", body, resource_version=stale))
    assert answer["data"] == {"b": "2"}
    with pytest.raises(Conflict):
        await port.write(Write("update", CONFIG_MAPS, namespace, "one", body, resource_version=stale))


async def test_a_delete_with_another_uid_conflicts_and_deletes_nothing(port: Cluster, namespace: str) -> None:
    made = await create(port, namespace, "one")
    with pytest.raises(Conflict):
        await port.write(Write("delete", CONFIG_MAPS, namespace, "one", uid="00000000-0000-0000-0000-000000000001"))
    await port.write(Write("delete", CONFIG_MAPS, namespace, "one", uid=made["metadata"]["uid"]))
    with pytest.raises(NotFound):
        await port.get(CONFIG_MAPS, namespace, "one")


async def test_creating_twice_conflicts_and_nonsense_is_invalid(port: Cluster, namespace: str) -> None:
    await create(port, namespace, "one")
    with pytest.raises(Conflict) as twice:
        await create(port, namespace, "one")
    assert twice.value.reason == "AlreadyExists"
    with pytest.raises(Invalid) as wrong:
        await create(port, namespace, "Not A Name")
    assert "metadata.name" in wrong.value.message


async def test_the_server_makes_a_name_from_generate_name(port: Cluster, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    answer = await port.write(Write("create", CONFIG_MAPS, namespace, body=body))
    assert answer["metadata"]["name"].startswith("made-")


async def test_binding_a_pod_sets_its_node_once(port: Cluster, namespace: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"}}
    await port.write(Write("create", NODES, name=node["metadata"]["name"], body=node))  # type: ignore[index]
    made = await port.write(Write("create", PODS, namespace, "p", pod("p")))
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "uid": made["metadata"]["uid"]},
        "target": {"kind": "Node", "name": f"node-{namespace}"},
    }  # fmt: skip
    write = Write("create", PODS, namespace, "p", binding, subresource="binding")
    await port.write(write)
    assert (await port.get(PODS, namespace, "p"))["spec"]["nodeName"] == f"node-{namespace}"
    with pytest.raises(Conflict):
        await port.write(write)


async def test_a_status_patch_changes_only_the_status(port: Cluster, namespace: str) -> None:
    await port.write(Write("create", PODS, namespace, "p", pod("p")))
    body = {"status": {"phase": "Running"}, "spec": {"nodeName": "elsewhere"}}
    answer = await port.write(Write("patch", PODS, namespace, "p", body, subresource="status", patch="strategic"))
    assert answer["status"]["phase"] == "Running"
    assert "nodeName" not in answer["spec"]


async def test_many_writes_at_once_all_arrive(port: Cluster, namespace: str) -> None:
    await asyncio.gather(*(create(port, namespace, f"many-{n}") for n in range(60)))
    raws, _ = await port.list(CONFIG_MAPS, namespace=namespace)
    assert len([name for name in names(raws) if name.startswith("many-")]) == 60


async def test_a_field_selector_narrows_a_list(port: Cluster, namespace: str) -> None:
    await create(port, namespace, "one")
    await create(port, namespace, "two")
    raws, _ = await port.list(CONFIG_MAPS, namespace=namespace, field_selector="metadata.name=two")
    assert names(raws) == ["two"]


async def test_a_missing_object_and_a_missing_namespace_are_not_found(port: Cluster) -> None:
    with pytest.raises(NotFound):
        await port.get(LEASES, "kube-system", "nobody")
    with pytest.raises(NotFound):
        await port.write(Write("create", CONFIG_MAPS, "nowhere", "x", config_map("x")))
