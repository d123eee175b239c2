from __future__ import annotations

import pytest

from tests.controllers.eviction_cluster import Tainted


@pytest.fixture
def cluster() -> Tainted:
    """A device in use by a pod, and the controller of evictions."""
    made = Tainted()
    made.start_eviction()
    made.slice()
    made.using("train", "gpu-0")
    made.run()
    return made
