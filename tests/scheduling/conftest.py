from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scheduling_cluster import Sim


@pytest.fixture
def sim() -> Sim:
    return Sim()


@pytest.fixture
def dra(sim: Sim) -> Sim:
    """One node with eight devices that pods can ask for as an extended resource."""
    sim.add_class("gpu.example.com", extended="example.com/gpu")
    sim.add_node("dra")
    sim.add_slice("dra", 8)
    return sim
