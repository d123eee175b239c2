"""What it costs to look for victims in vain: one decision over many full nodes, against one that finds room at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.table import Table, ratio
from dray.api.core import Node, Pod
from dray.api.kinds import NODES, PODS
from dray.api.meta import decode
from dray.cluster.port import Change
from dray.cluster.world import World
from dray.scheduling.kinds import KINDS
from dray.scheduling.scheduler import Scheduler


def full(nodes: int, pods: int) -> Scheduler:
    """Every node full of pods of low priority."""
    scheduler = Scheduler(World(KINDS))
    status = {"allocatable": {"cpu": str(pods), "memory": "1Ti", "pods": "200"}}
    for number in range(nodes):
        scheduler.observe(Change(NODES, None, decode(Node, {"metadata": {"name": f"n{number}"}, "status": status})), 0.0)
        for index in range(pods):
            scheduler.observe(Change(PODS, None, _pod(f"p{number}-{index}", "1", 1, f"n{number}")), 0.0)
    scheduler.act(0.0)
    return scheduler


def _pod(name: str, cpu: str, priority: int, node: str = "") -> Pod:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "schedulerName": "default-scheduler", "priority": priority, "nodeName": node}
    return decode(Pod, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


def preemption(quick: bool) -> Table:
    table = Table("One decision where every node is full", ("nodes", "pods a node", "cannot be helped", "evicts one", "ratio"))
    for nodes, pods in ((16, 10),) if quick else ((256, 100), (1000, 100)):
        scheduler = full(nodes, pods)
        seconds = []
        for name, cpu in (("huge", str(pods + 1)), ("fits", "1")):
            scheduler.observe(Change(PODS, None, _pod(name, cpu, 100)), 1.0)
            began = time.process_time()
            scheduler.act(1.0)
            seconds.append(time.process_time() - began)
        vain, found = seconds
        table.add(str(nodes), str(pods), f"{1000 * vain:.1f} ms", f"{1000 * found:.1f} ms", ratio(vain, found))
    return table


TABLES: dict[str, Callable[[bool], Table]] = {"preemption": preemption}
