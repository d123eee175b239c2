"""KEP-5007: whatever devices say, and however often they take it back, no bind is sent while one of the pod's is not ready."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from dray.api import kinds
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Conflict, Unreachable, Write
from dray.scheduling.config import Config, Profile
from tests.scheduling.scheduling_cluster import Sim

Plain = dict[str, Any]
READY, POWERED, FAILED = "dra.example.com/is-prepared", "powered", "dra.example.com/preparing-failed"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY, POWERED], "bindingFailureConditions": [FAILED]}
SHARED = {"allowMultipleAllocations": True, "capacity": {"slots": {"value": "3", "requestPolicy": {"default": "1"}}}}
WHICH = ("driver", "pool", "device", "shareID")


def results(claim: Plain) -> list[Plain]:
    found: list[Plain] = (claim["status"].get("allocation") or {}).get("devices", {}).get("results", [])
    return found


def said(claim: Plain, result: Plain) -> dict[str, str]:
    """What is said of a device, by type."""
    entries = (each for each in claim["status"].get("devices", []) if all(each.get(key) == result.get(key) for key in WHICH))
    return {condition["type"]: condition["status"] for each in entries for condition in each["conditions"]}


def say(sim: Sim, claim: Plain, words: list[dict[str, str]]) -> None:
    """For each device of the claim."""
    common = {"reason": "Said", "message": "", "lastTransitionTime": format_time(sim.now)}
    claim["status"]["devices"] = [
        {
            **{key: result[key] for key in WHICH if key in result},
            "conditions": [{"type": type, "status": status, **common} for type, status in word.items()],
        }
        for result, word in zip(results(claim), words, strict=True)
    ]
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def waver(sim: Sim, rng: random.Random, claim: Plain) -> None:
    words = [said(claim, result) for result in results(claim)]
    for word in words:
        for type in (READY, POWERED):
            if rng.random() < 0.6:
                word[type] = rng.choice(("True", "True", "True", "False", "Unknown"))
        if rng.random() < 0.1:
            word[FAILED] = rng.choice(("True", "False"))
    say(sim, claim, words)


def unready(sim: Sim, pod: Plain) -> list[str]:
    names = [entry["resourceClaimName"] for entry in pod["spec"].get("resourceClaims", [])]
    names += [named["resourceClaimName"]] if (named := pod["status"].get("extendedResourceClaimStatus")) else []
    found = [name for name in names if not results(sim.claim(name))]
    for name in names:
        for result in results(sim.claim(name)):
            word = said(sim.claim(name), result)
            if (word.get(READY), word.get(POWERED)) != ("True", "True") or word.get(FAILED) == "True":
                found.append(f"{name} {result['device']} {word}")
    return found


def add(sim: Sim, rng: random.Random, name: str) -> None:
    if rng.random() < 0.3:
        sim.add_pod(name, containers=[{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}])
        return
    sim.add_claim(name, count=rng.choice((1, 2)))
    for part in range(rng.choice((1, 2))):
        sim.add_pod(f"{name}-{part}", claims=[name], priority=rng.choice((0, 10)))


@pytest.mark.parametrize("seed", [0, 1, 2, 11, 12])
def test_no_bind_is_sent_while_a_device_is_not_ready(seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim(Config(profiles=(Profile(binding_timeout=20.0),), device_rest=5.0))
    sim.add_class("gpu", extended="example.com/gpu")
    for node in ("n0", "n1"):
        sim.add_node(node)
        sim.add_slice(node, 2, **FABRIC)
    sim.add_slice("", 1, pool="shared", **SHARED, **FABRIC)
    doubtful: set[str] = set()
    real = sim.api.write

    def fault(write: Write) -> ClusterError | None:
        error: ClusterError | None = None
        if write.kind is not kinds.EVENTS and rng.random() < 0.12:
            error = rng.choice((Conflict(409, "Conflict", "someone was faster"), Unreachable("no answer")))
            if rng.random() < 0.3:
                with suppress(ClusterError):
                    real(write)
        pod = sim.api.objects[kinds.PODS].get(write.key) if write.subresource == "binding" else None
        if pod is not None and pod["metadata"]["uid"] == write.uid:
            # One that was sent before may have come true: it is sent again as it was.
            assert write.uid in doubtful or pod["spec"].get("nodeName") or not (found := unready(sim, pod)), found
            doubtful.update([write.uid] if error is not None else [])
        return error

    sim.fault = fault
    for serial in range(80):
        for _ in range(rng.randrange(1, 4)):
            allocated = [claim for claim in sim.api.objects[kinds.RESOURCE_CLAIMS].values() if results(claim)]
            if rng.random() < 0.2:
                add(sim, rng, f"p{serial}-{rng.randrange(10**6)}")
            elif rng.random() < 0.15 and (pods := list(sim.api.objects[kinds.PODS])):
                sim.remove(kinds.PODS, rng.choice(pods))
            elif allocated:
                waver(sim, rng, rng.choice(allocated))
        for _ in range(rng.randrange(4)):
            sim.step()
        sim.now += rng.choice((0.0, 0.0, 0.5, 3.0, 25.0))
        if rng.random() < 0.06:
            sim.restart()
    sim.fault = None
    for _ in range(10):
        for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
            say(sim, claim, [{READY: "True", POWERED: "True"} for _ in results(claim)])
        sim.settle(4, most=20000)
    assert sim.preparing() == []
