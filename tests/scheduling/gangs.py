"""A cluster with queues and gangs: what their tests make, and what they look at."""

from __future__ import annotations

from typing import Any

from dray.api import kinds
from dray.explain.answer import Why
from dray.explain.why import why
from tests.scheduling.scheduling_cluster import Sim, node, pod

GPU = "nvidia.com/gpu"
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def add_queue(sim: Sim, name: str, gpu: float = 0, limit: float = -1, parent: str = "", **annotations: str) -> None:
    spec: dict[str, Any] = {
        "resources": {"cpu": UNLIMITED, "memory": UNLIMITED, "gpu": {"quota": gpu, "limit": limit, "overQuotaWeight": 1}}
    }
    if parent:
        spec["parentQueue"] = parent
    sim.api.put(kinds.QUEUES, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def add_group(sim: Sim, name: str, queue: str, members: int, **spec: Any) -> None:
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"queue": queue, "minMember": members, **spec}}
    sim.api.put(kinds.POD_GROUPS, body)


def add_member(sim: Sim, name: str, group: str, gpus: int = 1, **extra: Any) -> None:
    made = pod(name, requests={GPU: str(gpus)} if gpus else None, **extra)
    made["metadata"]["annotations"] = {"pod-group-name": group}
    sim.api.put(kinds.PODS, made)


def add_single(sim: Sim, name: str, queue: str = "", gpus: int = 1, **extra: Any) -> None:
    labels = {"kai.scheduler/queue": queue} if queue else {}
    sim.api.put(kinds.PODS, pod(name, requests={GPU: str(gpus)} if gpus else None, labels=labels, **extra))


def cluster(*gpus: int) -> Sim:
    sim = Sim()
    for index, count in enumerate(gpus):
        sim.api.put(kinds.NODES, node(f"n{index}", cpu="64", memory="256Gi", resources={GPU: str(count)}))
    return sim


def running(sim: Sim) -> set[str]:
    pods = sim.api.objects[kinds.PODS].values()
    return {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}


def add_gang(sim: Sim, members: int, gpus: int, minimum: int = 0, **extra: Any) -> None:
    """``train``, with the members w0, w1 …"""
    add_group(sim, "train", "", minimum or members)
    for index in range(members):
        add_member(sim, f"w{index}", "train", gpus, **extra)
    sim.settle(3)


def asked(sim: Sim, name: str) -> Why:
    return why(sim.world, sim.world.get(kinds.PODS, f"default/{name}"), now=sim.now)
