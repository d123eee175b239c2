"""Rules that come, change and go while pods arrive and the controller is killed: exactly the right pods leave.

The oracle reads the API server's objects and knows nothing of the controller: a plain loop over claims, slices and rules.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api.kinds import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.times import parse_time
from dray.runtime.faults import EVERY, NONE, Faults
from dray.runtime.virtual import Written
from tests.controllers.eviction_cluster import DRIVER, HOST, Tainted, taint, tolerates

Plain = dict[str, Any]
SELECTORS: dict[str, Plain] = {
    "one device": {"driver": DRIVER, "pool": "n1", "device": "gpu-1"},
    "a driver": {"driver": DRIVER},
    "everything": {},
}


def matches(selector: Plain | None, result: Plain) -> bool:
    return selector is not None and all(result[key] == value for key, value in selector.items())


def tolerated_until(found: Plain, tolerations: list[Plain]) -> float:
    """When a taint makes the user of a result leave."""
    added, limits = parse_time(found["timeAdded"]), []
    for toleration in tolerations:
        same_key = toleration.get("key", "") in ("", found["key"])
        same_value = toleration["operator"] == "Exists" or toleration.get("value", "") == found.get("value", "")
        if same_key and same_value and toleration.get("effect", "") in ("", "NoExecute"):
            limits.append(max(0, toleration["tolerationSeconds"]) if "tolerationSeconds" in toleration else float("inf"))
    return added if not limits else float("inf") if float("inf") in limits else added + min(limits)


def leaves_at(cluster: Tainted, pod: Plain, only: str = "") -> float:
    """When the pod must leave, because of the rule ``only`` or of anything; infinity for never."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return float("inf")
    times = []
    names = [entry["resourceClaimName"] for entry in pod["spec"].get("resourceClaims", ())]
    for name in names:
        claim = cluster.core.get(RESOURCE_CLAIMS, f"{pod['metadata']['namespace']}/{name}")
        status = (claim or {}).get("status", {})
        if pod["metadata"]["uid"] not in [user["uid"] for user in status.get("reservedFor", ())]:
            continue
        for result in status["allocation"]["devices"]["results"]:
            times += [tolerated_until(found, result.get("tolerations", [])) for found in taints_on(cluster, result, only)]
    return min(times, default=float("inf"))


def taints_on(cluster: Tainted, result: Plain, only: str) -> list[Plain]:
    rules = [rule for name, rule in cluster.core.all(DEVICE_TAINT_RULES).items() if only in ("", name)]
    found = [rule["spec"]["taint"] for rule in rules if matches(rule["spec"].get("deviceSelector"), result)]
    for slice in () if only else cluster.core.all(RESOURCE_SLICES).values():
        found += [t for d in slice["spec"]["devices"] if d["name"] == result["device"] for t in d.get("taints", ())]
    return [each for each in found if each["effect"] == "NoExecute"]


class Watched(Tainted):
    """Remembers of every pod when it had to leave, as the API said at any moment, and checks each delete against it."""

    def __init__(self, seed: int, faults: Faults) -> None:
        super().__init__(seed, faults, rate=50.0)
        self.lag = self._lag(faults)  # also of what was sent before they end
        self.due: dict[str, list[tuple[float, float]]] = {}  # uid -> (asked at, must leave at)
        self.unjust: list[str] = []
        self.deleted: set[str] = set()
        self.shell.listeners.append(self._check)

    def note(self) -> None:
        for pod in self.core.all(PODS).values():
            self.due.setdefault(pod["metadata"]["uid"], []).append((self.now, leaves_at(self, pod)))

    def _check(self, written: Written) -> None:
        write = written.write
        if written.host != HOST or write.kind != PODS or write.verb != "delete" or written.error is not None:
            return
        self.deleted.add(write.uid)
        # What was true within the time that events and writes take counts.
        noted = self.due.get(write.uid, [])
        recent = [when for at, when in noted if at >= self.now - self.lag] or [when for _, when in noted[-1:]]
        if min(recent, default=float("inf")) > self.now:
            self.unjust.append(write.name)

    def _lag(self, faults: Faults) -> float:
        away = max((end - start for start, end in faults.away), default=0.0)
        late = faults.late_by[1] if faults.late_write else 0.0
        return 2 * (faults.event_delay[1] + faults.write_delay[1]) + faults.gap[1] + away + late + 1.0

    def left_behind(self) -> list[str]:
        """Pods that had to leave by now and were not told."""
        pods = self.core.all(PODS).items()
        return [key for key, pod in pods if "deletionTimestamp" not in pod["metadata"] and leaves_at(self, pod) <= self.now]

    def pending(self, rule: str) -> int:
        pods = self.core.all(PODS).values()
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return sum(leaves_at(self, pod, rule) < float("inf") for pod in alive)


def act(cluster: Watched, rng: random.Random, number: int) -> None:
    """Something that users, drivers or administrators do."""
    rules = sorted(cluster.core.all(DEVICE_TAINT_RULES))
    pods = sorted(key for key, pod in cluster.core.all(PODS).items() if "deletionTimestamp" not in pod["metadata"])
    match rng.choice(["pod", "pod", "pod", "rule", "effect", "effect", "unrule", "slice", "finish", "gone", "select"]):
        case "pod":
            wanted: list[Plain] = rng.choice(
                [[], [], [tolerates()], [tolerates(rng.choice([0, 15, 40]))], [tolerates(effect="NoSchedule")]]
            )
            cluster.using(f"p{number}", f"gpu-{rng.randrange(4)}", tolerations=wanted)
        case "rule":
            effect = rng.choice(["None", "NoExecute", "NoSchedule"])
            cluster.rule(f"r{number}", effect, rng.choice(list(SELECTORS.values())))
        case "effect" if rules:
            cluster.change(rng.choice(rules), effect=rng.choice(["None", "NoExecute", "NoExecute", "NoSchedule"]))
        case "select" if rules:
            chosen = {"driver": None, "pool": None, "device": f"gpu-{rng.randrange(4)}"}
            cluster.patch(DEVICE_TAINT_RULES, rng.choice(rules), {"spec": {"deviceSelector": chosen}})
        case "unrule" if rules:
            cluster.delete(DEVICE_TAINT_RULES, rng.choice(rules))
        case "slice":
            cluster.slice({f"gpu-{rng.randrange(4)}": [taint(timeAdded=cluster.ago(0))]} if rng.random() < 0.5 else {})
        case "finish" if pods:
            name = rng.choice(pods).rpartition("/")[2]
            cluster.status(PODS, name, {"phase": "Succeeded"})
        case "gone" if pods:
            cluster.delete(PODS, rng.choice(pods).rpartition("/")[2], gracePeriodSeconds=0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("trouble", [name for name in EVERY if name != "away"])
def test_with_faults_nobody_leaves_unjustly_and_nobody_is_left_behind(trouble: str, seed: int) -> None:
    rng, faults = random.Random(f"{trouble} {seed}"), EVERY[trouble]
    cluster = Watched(seed, faults)
    cluster.slice()
    cluster.start_eviction()
    for number in range(60):
        act(cluster, rng, number)
        cluster.note()
        cluster.run(rng.uniform(0.1, 12.0))
        cluster.note()
    cluster.shell.faults = NONE
    cluster.run(400)
    assert cluster.unjust == []
    assert cluster.left_behind() == []
    assert cluster.deleted


@pytest.mark.parametrize("seed", range(8))
def test_without_faults_but_kills_the_counts_are_true_at_each_step(seed: int) -> None:
    rng = random.Random(f"counts {seed}")
    cluster = Watched(seed, NONE)
    cluster.slice()
    cluster.start_eviction()
    for number in range(25):
        act(cluster, rng, number)
        cluster.note()
        if rng.random() < 0.2:
            cluster.restart()
        cluster.run(25)
        assert cluster.left_behind() == []
        for name, rule in cluster.core.all(DEVICE_TAINT_RULES).items():
            check_status(cluster, name, rule)
    assert cluster.unjust == []


def check_status(cluster: Watched, name: str, rule: Plain) -> None:
    condition, effect = cluster.condition(name), rule["spec"]["taint"]["effect"]
    assert condition is not None
    assert condition["observedGeneration"] == rule["metadata"]["generation"]
    pending = cluster.pending(name) if effect == "NoExecute" else 0
    assert (condition["status"] == "True") == (pending > 0)
    if pending:
        assert int(condition["message"].split(" ")[0]) == pending
    if effect == "None":
        assert condition["reason"] == "NoEffect"


@pytest.mark.parametrize("selected", SELECTORS)
def test_none_then_no_execute_then_removed_with_pods_arriving_and_the_controller_killed(selected: str) -> None:
    """The way that KEP-5055 tells administrators to go."""
    cluster = Watched(1, NONE)
    cluster.slice()
    cluster.start_eviction()
    arrived = 0

    def arrive(seconds: int) -> None:
        nonlocal arrived
        for _ in range(seconds):
            cluster.using(f"p{arrived}", f"gpu-{arrived % 4}")
            arrived += 1
            cluster.note()
            cluster.run(1)

    arrive(8)
    cluster.rule(effect="None", selector=SELECTORS[selected])
    cluster.run(2)
    would = 2 if selected == "one device" else 8
    assert f"{would} pods would be evicted in 1 namespace if" in cluster.told()[2]
    arrive(4)
    assert cluster.deleted == set()
    cluster.change(effect="NoExecute")
    arrive(3)
    cluster.restart()
    arrive(12)
    cluster.run(30)
    selects = {f"p{n}" for n in range(arrived) if selected != "one device" or n % 4 == 1}
    assert cluster.leaving() == selects
    assert cluster.told()[0] == "False"
    cluster.shell.crash(HOST, 20)
    cluster.delete(DEVICE_TAINT_RULES, "rule")
    arrive(8)
    cluster.run(60)
    assert cluster.leaving() == selects
    assert cluster.unjust == []
