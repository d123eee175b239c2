"""Tests of drivers, controllers and schedulers, without a cluster and without waiting.

The API server is Dray's own, in this process: what it refuses, a cluster refuses. Time is virtual: hours take milliseconds and
nothing depends on how fast a machine is. Everything random comes from a seed: a test that fails, fails again.

- ``VirtualCluster``: a whole cluster (scheduler, controllers, nodes and what you bring), with faults if you like.
- ``Lockstep``: one decider alone, step by step, with every write in your hands.
- ``node``, ``pod``, ``claim`` …: objects that the API takes, short to write.
- ``assert_running`` …: assertions that say what is so instead, and why.

::

    cluster = VirtualCluster()
    cluster.start_all()
    cluster.create(device_class("gpu"), *node_with_devices("n1", 2), claim_template("one-gpu"), pod("train", template="one-gpu"))
    cluster.run(10)
    assert_running(cluster, "train")
    assert_sound(cluster)
"""

from dray.runtime.faults import EVERY as FAULTS
from dray.runtime.faults import Crash, Faults
from dray.runtime.virtual import Clock
from dray.testing.assertions import assert_running, assert_sound, assert_waiting
from dray.testing.builders import (
    claim,
    claim_template,
    device,
    device_class,
    node,
    node_with_devices,
    pod,
    resource_slice,
)
from dray.testing.cluster import VirtualCluster
from dray.testing.lockstep import Lockstep, NotAtRest
from dray.testing.server import Server

__all__ = [
    "FAULTS",
    "Clock",
    "Crash",
    "Faults",
    "Lockstep",
    "NotAtRest",
    "Server",
    "VirtualCluster",
    "assert_running",
    "assert_sound",
    "assert_waiting",
    "claim",
    "claim_template",
    "device",
    "device_class",
    "node",
    "node_with_devices",
    "pod",
    "resource_slice",
]
