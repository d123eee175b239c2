"""Devices: what is published, what is in use, and which devices a pod's claims get on a node.

``Devices`` is the whole interface: tell it about slices, rules, classes, nodes and claims, ask it ``allocate`` or
``first_fit``, charge a decision with ``hold``, and plan in a trial of its ``books``. It does no I/O.
"""

from dray.devices.engine import Devices, Order, Verdict
from dray.devices.explain import Explanation, RequestFinding
from dray.devices.packing import DeviceScore
from dray.devices.rating import Rating

__all__ = [
    "DeviceScore",
    "Devices",
    "Explanation",
    "Order",
    "Rating",
    "RequestFinding",
    "Verdict",
]
