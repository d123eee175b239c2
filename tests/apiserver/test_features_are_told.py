"""``/metrics`` tells which features are on, as Kubernetes does, and commands go by it."""

from __future__ import annotations

import pytest

from dray.api import features
from dray.api.gates import GATES, Gates
from dray.apiserver import metrics
from dray.apiserver.registry import Registry
from dray.apiserver.store import Store

OFF = Gates.dray().updated({"DRADeviceCompatibilityGroups": False})


@pytest.mark.parametrize("gates", [Gates.dray(), Gates.upstream(), OFF])
def test_what_is_written_is_read_back(gates: Gates) -> None:
    assert features.read(metrics.page(Registry(()), Store(), gates)) == {name: gates(name) for name in GATES}


def test_it_is_read_as_a_real_server_writes_it() -> None:
    text = b"""# HELP kubernetes_feature_enabled [BETA] The stage and enablement of a k8s feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="APIResponseCompression",stage="BETA"} 1
kubernetes_feature_enabled{name="DRADeviceCompatibilityGroups",stage="ALPHA"} 0
kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1
process_open_fds 12
"""
    assert features.read(text) == {"DRADeviceCompatibilityGroups": False, "DynamicResourceAllocation": True}


def test_something_else_says_nothing() -> None:
    assert features.read(b"\xff\x00 kubernetes_feature_enabled{name=\n" * 1000) == {}
