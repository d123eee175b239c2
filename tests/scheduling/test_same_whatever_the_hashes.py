"""What is decided does not depend on the order in which a process keeps its sets: the same cluster, the same writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Queues with counters and alternatives, where sums over resources are compared and told.
RUN = """
from tests.scheduling.test_queues_whatever_happens import Churn
churn, judged = Churn(102), []
fault = churn.sim.fault
churn.sim.fault = lambda write: judged.append((write.verb, write.kind.kind, write.key, str(write.body))) or fault(write)
for _ in range(15):
    churn.add()
    churn.pass_time(churn.pick.choice((1.5, 3.0)))
print(*judged, sep="\\n")
"""


def writes(seed: str) -> list[str]:
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", RUN], env=env, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_queues_decide_the_same_in_every_process() -> None:
    first = writes("0")
    assert len(first) > 50
    assert writes("3") == first
