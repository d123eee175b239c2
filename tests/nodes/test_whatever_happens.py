"""Random pods, claims, drivers and faults: a node never gives what it does not have, and in the end nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.cluster.port import ClusterError
from dray.nodes.checkpoint import Files
from dray.nodes.drivers import Answer, ClaimName, Failed, NotYet, Operation
from dray.runtime.faults import EVERY
from tests.nodes.laboratory import NODE, Driver, Laboratory, prepared

CPUS = 95_500
FAULTY_SECONDS = 300


class Moody(Driver):
    """Takes its time, fails, goes away and comes back; at last it behaves."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.lab: Laboratory | None = None
        self.held: set[str] = set()
        self.answer = self.decide

    def serves(self, node: str, driver: str) -> bool:
        return self.calm or self.rng.random() > 0.1

    @property
    def calm(self) -> bool:
        assert self.lab is not None
        return self.lab.place.shell.elapsed > FAULTY_SECONDS

    def decide(self, operation: Operation, driver: str, claims: Sequence[ClaimName]) -> Answer:
        assert self.lab is not None
        if not self.calm and self.rng.random() < 0.4:
            return NotYet(self.lab.now + self.rng.random() * 5)
        if not self.calm and self.rng.random() < 0.3:
            return Failed("not today")
        names = {claim.uid for claim in claims}
        self.held = self.held | names if operation == "prepare" else self.held - names
        return prepared(operation, driver, claims)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_given_twice_and_nothing_is_left_behind(seed: int, tmp_path: Path) -> None:
    rng, driver = random.Random(seed), Moody(seed)
    lab = Laboratory(driver, faults=EVERY["everything"], checkpoint=Files({NODE: tmp_path}))
    driver.lab = lab
    users: dict[str, list[str]] = {}
    for number in range(12):
        lab.claim(f"claim-{number}", f"gpu-{number % 8}")
    at = 5.0
    for number in range(60):
        lab.run(at)
        name, claims = f"pod-{number}", rng.sample(range(12), rng.choice([0, 1, 1, 2]))
        requests = {"cpu": f"{rng.choice([1, 5, 20, 40])}"}
        used = {"claims": [{"name": f"claim-{c}"} for c in claims], "requests": requests}
        annotations = rng.choice([{}, {"dray.dev/finishes-after": "15s"}, {"dray.dev/fails-after": "9s"}])
        containers = [{"name": "c", "image": "i", "resources": used}]
        users[name] = [f"claim-{c}" for c in claims]
        lab.pod(name, *users[name], annotations=annotations, containers=containers)
        if rng.random() < 0.5:
            delete(lab, f"pod-{rng.randrange(number + 1)}", force=rng.random() < 0.3)
        at += rng.random() * 6
        check(lab, users, driver)
    for name in users:
        delete(lab, name, force=False)
    lab.run(FAULTY_SECONDS + 1200)
    assert lab.place.all(PODS) == []
    assert driver.held == set()
    assert {operation for operation, *_ in driver.calls} == {"prepare", "unprepare"}


def delete(lab: Laboratory, name: str, *, force: bool) -> None:
    try:
        lab.place.delete(PODS, name, **({"gracePeriodSeconds": 0} if force else {}))
    except ClusterError:
        return  # it is gone already


def check(lab: Laboratory, users: dict[str, list[str]], driver: Moody) -> None:
    # A pod that is ending still shows as running while its claims are let go, and until that is told.
    shown = [each for each in lab.place.all(PODS) if each["status"].get("phase") == "Running"]
    running = [each for each in shown if not each["metadata"].get("deletionTimestamp") and not ends(each)]
    asked = [c["resources"]["requests"]["cpu"] for each in running for c in each["spec"]["containers"]]
    assert sum(1000 * int(amount) for amount in asked) <= CPUS
    for each in running:
        for claim in users[each["metadata"]["name"]]:
            found = lab.place.get(RESOURCE_CLAIMS, claim)
            assert found is not None
            assert found["metadata"]["uid"] in driver.held, f"{each['metadata']['name']} runs without {claim}"


def ends(pod: dict[str, object]) -> bool:
    annotations = pod["metadata"].get("annotations") or {}  # type: ignore[attr-defined]
    return any(name in annotations for name in ("dray.dev/finishes-after", "dray.dev/fails-after"))
