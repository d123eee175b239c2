"""What pods ask for, and which nodes have any of it."""

from __future__ import annotations

from typing import Any

from dray.api.core import Node
from dray.api.meta import decode
from dray.api.requests import offered_by


def node(**allocatable: Any) -> Node:
    return decode(Node, {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}})


def test_a_resource_of_which_every_node_has_0_is_offered_by_none() -> None:
    gone, there = "example.com/gone", "example.com/gpu"
    assert offered_by([node(cpu="500m", **{gone: "0", there: 0}), node(**{gone: 0, there: "2"})]) == {"cpu", there}
