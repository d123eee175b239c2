"""Feature gates have upstream's names and dependencies."""

from __future__ import annotations

import pytest

from dray.api.gates import GateError, Gates


def test_a_gate_whose_dependency_is_off_is_off() -> None:
    gates = Gates.dray().updated({"DRAPartitionableDevices": False})
    assert not gates("DRADeviceCompatibilityGroups")
    assert gates("DRADeviceTaints")


def test_upstream_defaults_have_alpha_features_off_and_drays_have_them_on() -> None:
    assert not Gates.upstream()("DRADeviceCompatibilityGroups")
    assert Gates.dray()("DRADeviceCompatibilityGroups")


def test_the_allocators_feature_names_are_aliases() -> None:
    gates = Gates.dray().updated({"DeviceBindingAndStatus": False})
    assert not gates("DRADeviceBindingConditions")
    assert not gates("DRAResourceClaimDeviceStatus")


@pytest.mark.parametrize("text", ["Nope=true", "DRADeviceTaints", "DRADeviceTaints=maybe"])
def test_unknown_gates_and_values_are_named_in_the_error(text: str) -> None:
    with pytest.raises(GateError, match=text.split("=")[0]):
        Gates.parse(text, Gates.dray())


def test_gates_are_parsed_like_a_command_line_flag() -> None:
    assert not Gates.parse("DRADeviceTaints=false, DRAAdminAccess=true", Gates.upstream())("DRADeviceTaintRules")
