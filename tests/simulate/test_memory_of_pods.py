"""What a pod takes in memory while it is there: API server, scheduler, controllers and nodes together, as Python counts bytes.

docs/performance.md publishes the figure for `dray up`; this holds it. A pod that takes half as much again is noticed.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Final

from dray.api.kinds import PODS
from dray.testing import VirtualCluster, node, pod

WAVE: Final = 100
# Its objects, changes and events as bytes, and its picture in several processes: 45 KiB, most of it changes and events.
MOST_KIB: Final = 64


def come(cluster: VirtualCluster, first: int) -> None:
    cluster.create(*(pod(f"p{number}") for number in range(first, first + WAVE)))
    cluster.run(6)


def test_a_pod_takes_a_bounded_amount_of_memory() -> None:
    cluster = VirtualCluster()
    cluster.start_all()
    cluster.create(*(node(f"n{number}", cpu="1000", pods="1000") for number in range(4)))
    come(cluster, 0)  # what is made once, for pods of this sort
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        come(cluster, WAVE)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / WAVE / 1024
    finally:
        tracemalloc.stop()
    assert {found["status"]["phase"] for found in cluster.all(PODS)} == {"Running"}
    assert 8 < each < MOST_KIB
