"""How much of a shared device one request may take: values, ranges and steps."""

from __future__ import annotations

import pytest

PATH = "spec.devices[0].capacity[m].requestPolicy"


@pytest.fixture
def refused(api, device):
    def run(policy, value="10", *, shared=True, gates=None):
        fields = {"capacity": {"m": {"value": value, "requestPolicy": policy}}}
        found = api.create(
            "resourceslices", device(**fields, **({"allowMultipleAllocations": True} if shared else {})), gates=gates
        )
        return [path.removeprefix(PATH) for path in found]

    return run


def test_only_shared_devices_have_a_policy(refused):
    assert refused({"default": "1"}) == []
    assert refused({"default": "1"}, shared=False) == [""]


def test_values_and_range_exclude_each_other(refused):
    assert refused({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}) == [""]


@pytest.mark.parametrize(
    ("policy", "paths"),
    [
        ({"validValues": ["1"]}, [".default"]),
        ({"default": "3", "validValues": ["1", "2"]}, [".validValues"]),
        ({"default": "1", "validValues": ["2", "1"]}, [".validValues[1]"]),
        ({"default": "1", "validValues": ["1", "1"]}, [".validValues[1]"]),
        ({"default": "1", "validValues": ["1", "11"]}, [".validValues[1]"]),
        ({"default": "1Ki", "validValues": ["1024"]}, []),
    ],
)
def test_values_are_sorted_and_hold_the_default(refused, policy, paths):
    assert refused(policy, "10" if "1Ki" not in str(policy) else "2Ki") == paths


def test_ten_values_are_accepted_and_eleven_refused(refused):
    assert refused({"default": "1", "validValues": [str(i) for i in range(1, 11)]}, "20") == []
    assert refused({"default": "1", "validValues": [str(i) for i in range(1, 12)]}, "20") == [".validValues"]


@pytest.mark.parametrize(
    ("default", "span", "paths"),
    [
        ("1", {"max": "2"}, [".validRange.min"]),
        ("1", {"min": "2"}, [".validRange.default"]),
        ("5", {"min": "1", "max": "4"}, [".validRange.default"]),
        ("5", {"min": "5", "max": "4"}, [".validRange.max", ".validRange.default"]),
        ("1", {"min": "1", "max": "10"}, []),
        ("1", {"min": "1", "max": "11"}, [".validRange.max"]),
        ("11", {"min": "11"}, [".validRange.min"]),
        ("3", {"min": "1", "step": "2"}, []),
        ("4", {"min": "1", "step": "2"}, [".validRange.step"]),
        ("3", {"min": "1", "max": "9", "step": "2"}, []),
        ("3", {"min": "1", "max": "8", "step": "2"}, [".validRange.step"]),
        ("1", {"min": "1", "step": "0"}, [".validRange.step"]),
        ("1", {"min": "1", "step": "-1"}, [".validRange.step"]),
        ("1", {"min": "1", "step": "9"}, []),
        ("1", {"min": "1", "step": "10"}, [".validRange.step"]),
        ("-1", {"min": "-1"}, []),
    ],
)
def test_a_range_lies_in_the_capacity_and_its_steps_hit_default_and_maximum(refused, default, span, paths):
    assert refused({"default": default, "validRange": span}) == paths


def test_fractions_are_exact_with_the_gate(api, refused):
    gates = api.gates.updated({"DRAFractionalCapacityRange": True})
    assert refused({"default": "1500m", "validRange": {"min": "1", "step": "500m"}}, gates=gates) == []
    assert refused({"default": "1300m", "validRange": {"min": "1", "step": "500m"}}, gates=gates) == [".validRange.step"]
    assert refused({"default": "1500u", "validRange": {"min": "0"}}, gates=gates) == [".validRange.default"]
