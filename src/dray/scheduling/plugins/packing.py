"""``NodePacking``: nodes with the least left come first, of GPUs for pods that ask for them and of cpu for the others, as in KAI.

Where the fit plugin compares what part of a node is in use, this compares what is left of it: of a node with eight GPUs and one
with two, both with one free, neither is better. Pods that need no GPU go to nodes that have none, where there are any.
"""

from __future__ import annotations

from typing import Final

from dray.api.queues import GPU_RESOURCE
from dray.books.nodes import NodeInfo
from dray.scheduling.plugins.base import Compiled, PodShape, codes_of

# What it is worth to a pod without GPUs that a node has none.
_WITHOUT_GPUS: Final = 50


class NodePacking:
    name: Final = "NodePacking"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled:
        wants_gpu = any(name == GPU_RESOURCE and value for name, value in shape.demand.requests)

        def left(info: NodeInfo) -> int:
            return max(0, info.free(GPU_RESOURCE))

        def used(info: NodeInfo) -> int:
            total = info.allocatable.get("cpu", 0)
            part = _WITHOUT_GPUS * (total - max(0, info.free("cpu"))) // total if total else 0
            return part if info.allocatable.get(GPU_RESOURCE) else part + _WITHOUT_GPUS

        if wants_gpu:
            return Compiled(["node"], measure=left, normalize="reverse")
        return Compiled(["node"], measure=used)
