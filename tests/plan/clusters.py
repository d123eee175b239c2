"""Clusters on virtual time for tests of plans: random ones, and how one is read as a snapshot."""

from __future__ import annotations

import random
from typing import Any, Final

from dray.api.kinds import PODS
from dray.explain.plan import Changes
from dray.explain.snapshot import KINDS, Snapshot, from_objects
from dray.runtime.faults import Faults
from dray.runtime.hand import Hand
from dray.runtime.inprocess import InProcess
from dray.runtime.local import served_kind
from dray.testing import VirtualCluster, claim, claim_template, device_class, node_with_devices, pod

Plain = dict[str, Any]
AT_ONCE: Final = Faults(event_delay=(0.0, 0.0), write_delay=(0.0, 0.0))
PRIORITIES: Final = {"low": 0, "middle": 100, "high": 1000}
SIZES: Final = (1, 2, 3, 4)


def read(server: InProcess) -> Snapshot:
    return from_objects({(kind, key): body for kind in KINDS for key, body in server.all(kind).items()})


def priority(name: str, value: int) -> Plain:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def deployment(name: str, replicas: int, template: Plain) -> Plain:
    labels = {"app": name}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def furniture() -> list[Plain]:
    classes = [priority(name, value) for name, value in PRIORITIES.items()]
    return [*classes, device_class("gpu"), *(claim_template(f"gpu-{size}", count=size) for size in SIZES)]


def cluster(*objects: Plain, seconds: float = 60.0) -> VirtualCluster:
    made = VirtualCluster(faults=AT_ONCE)
    made.start_all()
    made.create(*furniture(), *objects)
    made.run(seconds)
    return made


def some_pod(rng: random.Random, name: str) -> list[Plain]:
    """A pod, after the claim that it uses, if any: nobody has to wait for one to be generated."""
    asked = {"cpu": rng.choice(("500m", "1", "2", "3"))}
    more: Plain = {"priorityClassName": rng.choice(list(PRIORITIES)), "terminationGracePeriodSeconds": 0}
    if rng.random() < 0.3:
        return [pod(name, requests=asked, **more)]
    return [claim(name, count=rng.choice(SIZES)), pod(name, requests=asked, claims=[name], **more)]


def some_set(rng: random.Random, name: str) -> Plain:
    more: Plain = {"priorityClassName": "low", "terminationGracePeriodSeconds": 0}
    if rng.random() < 0.5:
        more["template"] = f"gpu-{rng.choice(SIZES)}"
    return deployment(name, rng.randint(1, 3), pod("x", requests={"cpu": rng.choice(("500m", "1"))}, **more))


def some_cluster(rng: random.Random) -> VirtualCluster:
    nodes = [each for n in range(rng.randint(2, 5)) for each in node_with_devices(f"n{n}", rng.choice((0, 2, 4)))]
    pods = [each for n in range(rng.randint(0, 10)) for each in some_pod(rng, f"old-{n}")]
    return cluster(*nodes, *pods, *(some_set(rng, f"set-{n}") for n in range(rng.randint(0, 2))))


def some_changes(rng: random.Random) -> Changes:
    objects = [each for n in range(rng.randint(0, 5)) for each in some_pod(rng, f"new-{n}")]
    if rng.random() < 0.3:
        objects.append(some_set(rng, "more"))
    if rng.random() < 0.3:
        objects = [*node_with_devices("n9", rng.choice((2, 4))), *objects]
    drained = [f"n{rng.randint(0, 1)}"] if rng.random() < 0.3 else []
    cordoned = ["n1"] if rng.random() < 0.2 else []
    return Changes([("test", body) for body in objects], cordon=cordoned, drain=drained)


def really(made: VirtualCluster, changes: Changes, seconds: float = 120.0) -> None:
    """The same change, in the cluster itself."""
    hand = Hand(made.server)
    for _, body in changes.objects:
        hand.apply(served_kind(body), body)
    for name in changes.cordon:
        hand.cordon(name)
    for name in changes.drain:
        list(hand.drain(name))
    made.shell.pump()
    made.run(seconds)


def placed(made: VirtualCluster) -> dict[str, Plain]:
    """Every pod of the cluster that has not ended."""
    return {
        key: body for key, body in made.server.all(PODS).items() if body["status"].get("phase") not in ("Succeeded", "Failed")
    }
