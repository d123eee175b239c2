"""Other people's clients on defined kinds: the official Python client, and an operator written with kopf."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Write
from tests.apiserver.conftest import Json
from tests.apiserver.custom.conftest import OPEN, definition, fields, number, text

WIDGETS = Kind("example.com", "v1", "widgets", "Widget", True)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)
OPERATOR = """
import kopf

@kopf.on.create("example.com", "v1", "widgets")
def created(spec, name, namespace, patch, **_):
    patch.status["seen"] = spec["size"]
    return {"made": name}

@kopf.on.update("example.com", "v1", "widgets", field="spec.size")
def updated(new, patch, **_):
    patch.status["seen"] = new

@kopf.on.delete("example.com", "v1", "widgets")
def deleted(**_):
    pass
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ApiServer, Path]]:
    server = ApiServer()
    await server.start()
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    yield server, kubeconfig
    await server.stop()


def widgets() -> Json:
    schema = {"type": "object", "properties": {"spec": fields(size=number(), mode=text(default="auto")), "status": OPEN}}
    return definition(schema=schema, subresources={"status": {}})


async def until(holds: Any, seconds: float = 20.0) -> Any:
    for _ in range(int(seconds * 20)):
        found = await holds()
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


async def test_the_official_client_defines_lists_watches_and_deletes(served: tuple[ApiServer, Path]) -> None:
    kubernetes: Any = pytest.importorskip("kubernetes")
    _, kubeconfig = served

    def use() -> None:
        with kubernetes.config.new_client_from_config(str(kubeconfig)) as api:
            extensions = kubernetes.client.ApiextensionsV1Api(api)
            made = extensions.create_custom_resource_definition(widgets())
            assert [each.type for each in made.status.conditions if each.status == "True"] == ["NamesAccepted", "Established"]
            custom = kubernetes.client.CustomObjectsApi(api)
            where = ("example.com", "v1", "default", "widgets")
            body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
            assert custom.create_namespaced_custom_object(*where, body)["spec"] == {"size": 1, "mode": "auto"}
            custom.patch_namespaced_custom_object_status(*where, "w", {"status": {"phase": "Ready"}})
            stream = kubernetes.watch.Watch().stream(custom.list_namespaced_custom_object, *where, timeout_seconds=5)
            event = next(iter(stream))
            assert (event["type"], event["object"]["status"]) == ("ADDED", {"phase": "Ready"})
            custom.delete_namespaced_custom_object(*where, "w")
            assert custom.list_namespaced_custom_object(*where)["items"] == []
            extensions.delete_custom_resource_definition("widgets.example.com")

    await asyncio.to_thread(use)


@pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed (pip install -e '.[dev]')")
async def test_an_operator_written_with_kopf_does_its_work(served: tuple[ApiServer, Path], tmp_path: Path) -> None:
    """It watches the definitions, puts its finalizer and annotations on objects, writes their status, and lets them go."""
    server, kubeconfig = served
    cluster = Embedded(server)
    await cluster.write(Write("create", CUSTOM_RESOURCE_DEFINITIONS, body=widgets()))
    (tmp_path / "operator.py").write_text(OPERATOR)
    argv = [sys.executable, "-m", "kopf", "run", "--namespace=default", "--standalone", str(tmp_path / "operator.py")]
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    log = (tmp_path / "kopf.log").open("wb")
    operator = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=log, stderr=log)
    try:
        await cluster.write(Write("create", WIDGETS, "default", body={"metadata": {"name": "w"}, "spec": {"size": 3}}))

        async def seen(size: int) -> bool:
            found = await cluster.get(WIDGETS, "default", "w")
            return bool(found.get("status", {}).get("seen") == size)

        await until(lambda: seen(3))
        await cluster.write(Write("patch", WIDGETS, "default", "w", {"spec": {"size": 4}}))
        await until(lambda: seen(4))
        assert (await cluster.get(WIDGETS, "default", "w"))["metadata"]["finalizers"]
        await cluster.write(Write("delete", WIDGETS, "default", "w"))

        async def gone() -> bool:
            return not (await cluster.list(WIDGETS))[0]

        await until(gone)
    except AssertionError as error:
        raise AssertionError((tmp_path / "kopf.log").read_text()[-3000:]) from error
    finally:
        operator.terminate()
        await operator.wait()
        log.close()
