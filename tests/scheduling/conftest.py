from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scheduling_cluster import Sim


@pytest.fixture
def sim() -> Sim:
    return Sim()
