"""Random clusters of the family of the recorded ones: small, nearly full, with queues that borrowed and jobs that wait."""

from __future__ import annotations

from random import Random
from typing import Any, Final

Json = dict[str, Any]
STYLES: Final = ("mixed", "hierarchy", "priorities", "reclaim", "elastic", "fragmented", "cpu", "fixed")
PRIORITIES: Final = {"priorities": (40, 50, 60, 75, 100), "reclaim": (50,), "fragmented": (50,), "fixed": (50, 100, 100, 125)}
UNLIMITED: Final = {"quota": -1, "limit": -1, "over_quota_weight": 1}


def cluster(seed: int) -> Json:
    """A world as ``dray queues settle`` reads it."""
    chance = Random(f"cluster-{seed}")
    style = STYLES[seed % len(STYLES)]
    nodes = _nodes(chance, style)
    queues = _queues(chance, style, sum(node["allocatable"]["gpu"] for node in nodes))
    groups = _groups(chance, style, nodes, queues)
    chance.shuffle(groups)
    return {"nodes": nodes, "queues": queues, "podgroups": [dict(group, creation_rank=i) for i, group in enumerate(groups)]}


def _nodes(chance: Random, style: str) -> list[Json]:
    size = chance.choice((1, 2, 4, 4, 8))
    alike = chance.random() < 0.6
    cores = 16_000 if style == "cpu" else 128_000
    gpus = [size if alike else chance.randint(1, 8) for _ in range(chance.randint(2, 9))]
    return [
        {"name": f"node{index:02}", "allocatable": {"cpu_milli": cores, "memory_bytes": 10**12, "gpu": count, "pods": 110}}
        for index, count in enumerate(gpus)
    ]


def _queues(chance: Random, style: str, total: int) -> list[Json]:
    parents = chance.randint(1, 3) if style == "hierarchy" else 0
    made: list[Json] = []
    for index in range(parents + chance.randint(1, 6)):
        leaf = index >= parents
        quota = chance.choice((-1, 0, 0, 1, 2, chance.randint(1, max(1, total // 2))))
        gpu = {"quota": quota, "limit": -1, "over_quota_weight": chance.choice((0, 1, 1, 1, 2, 4))}
        if chance.random() < 0.12:
            gpu["limit"] = chance.randint(1, total)
        cpu = {**UNLIMITED, "quota": chance.randint(1, 50) * 1000} if style == "cpu" and leaf else UNLIMITED
        made.append({"name": f"queue{index}" if leaf else f"dept{index}", "creation_rank": index, "gpu": gpu, "cpu_milli": cpu})
        made[-1]["priority"] = chance.choice((100,) * 8 + (50, 200))
        if leaf and parents:
            made[-1]["parent"] = f"dept{chance.randrange(parents)}"
    return made


def _groups(chance: Random, style: str, nodes: list[Json], queues: list[Json]) -> list[Json]:
    leaves = [queue["name"] for queue in queues if queue["name"].startswith("queue")]
    # A few queues hold most of it.
    rich = chance.sample(leaves, max(1, len(leaves) // 2))
    free = {node["name"]: dict(node["allocatable"]) for node in nodes}
    groups = []
    for number in range(chance.randint(4, 20 if style != "fragmented" else 40)):
        group = _group(chance, style, f"run{number:02}", chance.choice(rich if chance.random() < 0.8 else leaves))
        if _placed(chance, group, free):
            groups.append(group)
    waiting = range(chance.randint(2, 8))
    return groups + [_group(chance, style, f"wait{number:02}", chance.choice(leaves), waits=True) for number in waiting]


def _group(chance: Random, style: str, name: str, queue: str, *, waits: bool = False) -> Json:
    count = 1 if chance.random() < 0.6 or (style == "fragmented" and not waits) else chance.randint(2, 6)
    gpus = chance.choice((1, 1, 1, 2, 2, 4, 8) if waits else (1, 1, 1, 2, 2, 4))
    if style == "fragmented" and not waits:
        gpus = 1
    cpu = 1000
    if style == "cpu":
        cpu, gpus = chance.choice((1000, 2000, 4000, 8000)), chance.choice((0, gpus))
    surplus = chance.randint(0, 3) if chance.random() < (0.5 if style == "elastic" else 0.05) else 0
    priority = chance.choice(PRIORITIES.get(style, (50, 50, 50, 60, 75, 100, 125)))
    requests = {"cpu_milli": cpu, "memory_bytes": 10**9, "gpu": gpus}
    pods = [{"name": f"{name}-{index}", "requests": requests, "state": "Pending"} for index in range(count + surplus)]
    preemptible = priority < 100 if chance.random() < 0.95 else priority >= 100
    return {"name": name, "queue": queue, "priority": priority, "preemptible": preemptible, "min_member": count, "pods": pods}


def _placed(chance: Random, group: Json, free: dict[str, Json]) -> bool:
    """Every pod of the group on a node with room for it, or at least as many as have to run together."""
    for index, pod in enumerate(group["pods"]):
        fits = [name for name, left in free.items() if all(left[key] >= value for key, value in pod["requests"].items())]
        if not fits:
            return index >= group["min_member"] or _taken_back(group, free)
        pod.update(state="Running", node=chance.choice(fits))
        for key, value in pod["requests"].items():
            free[pod["node"]][key] -= value
    return True


def _taken_back(group: Json, free: dict[str, Json]) -> bool:
    for pod in group["pods"]:
        if "node" in pod:
            for key, value in pod["requests"].items():
                free[pod["node"]][key] += value
    return False
