"""A field whose gate is off is dropped silently, unless the stored object uses the feature already."""

from __future__ import annotations

import copy

import pytest

from dray.api.gates import Gates
from dray.api.stripping import strip_disabled

DEVICE = {
    "name": "d",
    "taints": [{"key": "k", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["g"]}],
    "nodeName": "n",
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
    "bindsToNode": True,
    "allowMultipleAllocations": True,
    "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
    "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
    "attributes": {"a": {"ints": [1]}},
}
SLICE = {
    "spec": {"perDeviceNodeSelection": True, "skipNodeOperations": ["*"], "partitionTypeAttribute": "a/b", "devices": [DEVICE]}
}
REQUEST = {"tolerations": [{"key": "k"}], "capacity": {"requests": {"m": "1"}}, "derivedAttributes": [{"name": "a/b"}]}
CLAIM = {
    "spec": {
        "devices": {
            "requests": [{"exactly": {**REQUEST, "adminAccess": True}}, {"firstAvailable": [REQUEST]}],
            "constraints": [{"distinctAttribute": "a/b"}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "adminAccess": True,
                        "shareID": "x",
                        "consumedCapacity": {"m": "1"},
                        "bindingConditions": ["a"],
                        "skipNodeOperations": ["*"],
                        "compatibilityGroups": {"s": ["g"]},
                    }
                ]
            }
        },
        "devices": [{"device": "d", "shareID": "x"}],
    },
}
CLASS = {"spec": {"extendedResourceName": "example.com/gpu"}}
POD = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [{"requestName": "r"}]}}}

CASES = [
    ("resourceslices", SLICE, "DRADeviceTaints", ["spec.devices.0.taints"]),
    (
        "resourceslices",
        SLICE,
        "DRAPartitionableDevices",
        ["spec.perDeviceNodeSelection", "spec.devices.0.consumesCounters", "spec.devices.0.nodeName"],
    ),
    ("resourceslices", SLICE, "DRADeviceBindingConditions", ["spec.devices.0.bindingConditions", "spec.devices.0.bindsToNode"]),
    ("resourceslices", SLICE, "DRAResourceClaimDeviceStatus", ["spec.devices.0.bindingFailureConditions"]),
    (
        "resourceslices",
        SLICE,
        "DRAConsumableCapacity",
        ["spec.devices.0.allowMultipleAllocations", "spec.devices.0.capacity.m.requestPolicy"],
    ),
    ("resourceslices", SLICE, "DRADeviceCompatibilityGroups", ["spec.devices.0.consumesCounters.0.compatibilityGroups"]),
    ("resourceslices", SLICE, "DRANodeAllocatableResources", ["spec.devices.0.nodeAllocatableResources"]),
    ("resourceslices", SLICE, "DRAListTypeAttributes", ["spec.devices.0.attributes.a.ints"]),
    ("resourceslices", SLICE, "DRAPartitionableDevicesType", ["spec.partitionTypeAttribute"]),
    ("resourceslices", SLICE, "DRAOptionalNodeOperations", ["spec.skipNodeOperations"]),
    ("resourceclaims", CLAIM, "DRAPrioritizedList", ["spec.devices.requests.1.firstAvailable"]),
    (
        "resourceclaims",
        CLAIM,
        "DRADeviceTaints",
        ["spec.devices.requests.0.exactly.tolerations", "spec.devices.requests.1.firstAvailable.0.tolerations"],
    ),
    (
        "resourceclaims",
        CLAIM,
        "DRAAdminAccess",
        ["spec.devices.requests.0.exactly.adminAccess", "status.allocation.devices.results.0.adminAccess"],
    ),
    (
        "resourceclaims",
        CLAIM,
        "DRAConsumableCapacity",
        [
            "spec.devices.constraints.0.distinctAttribute",
            "spec.devices.requests.0.exactly.capacity",
            "status.allocation.devices.results.0.shareID",
            "status.allocation.devices.results.0.consumedCapacity",
            "status.devices.0.shareID",
        ],
    ),
    ("resourceclaims", CLAIM, "DRADerivedAttributes", ["spec.devices.requests.0.exactly.derivedAttributes"]),
    ("resourceclaims", CLAIM, "DRADeviceBindingConditions", ["status.allocation.devices.results.0.bindingConditions"]),
    ("resourceclaims", CLAIM, "DRAOptionalNodeOperations", ["status.allocation.devices.results.0.skipNodeOperations"]),
    ("resourceclaims", CLAIM, "DRADeviceCompatibilityGroups", ["status.allocation.devices.results.0.compatibilityGroups"]),
    ("resourceclaims", CLAIM, "DRAResourceClaimDeviceStatus", ["status.devices"]),
    ("deviceclasses", CLASS, "DRAExtendedResource", ["spec.extendedResourceName"]),
    ("pods", POD, "DRAExtendedResource", ["status.extendedResourceClaimStatus"]),
]
IDS = [f"{plural}-{gate}" for plural, _, gate, _ in CASES]
EVERYTHING = Gates(Gates.dray().on | {"DRANodeAllocatableResources", "DRAResourcePoolStatus", "DRAPartitionableDevicesType"})


def at(obj, path):
    for part in path.split("."):
        obj = obj[int(part)] if part.isdigit() else obj.get(part)
        if obj is None:
            return None
    return obj


def without(gate):
    return EVERYTHING.updated({gate: False})


@pytest.mark.parametrize(("plural", "obj", "gate", "paths"), CASES, ids=IDS)
def test_fields_of_a_disabled_feature_are_dropped(plural, obj, gate, paths):
    kept = strip_disabled(plural, copy.deepcopy(obj), None, EVERYTHING)
    assert kept == obj
    stripped = strip_disabled(plural, copy.deepcopy(obj), None, without(gate))
    assert [path for path in paths if at(stripped, path) is not None] == []


@pytest.mark.parametrize(("plural", "obj", "gate", "paths"), CASES, ids=IDS)
def test_fields_of_a_feature_that_is_in_use_are_kept(plural, obj, gate, paths):
    gates = Gates(EVERYTHING.on - {gate})
    kept = strip_disabled(plural, copy.deepcopy(obj), obj, gates)
    assert [path for path in paths if at(kept, path) is None] == []


def test_one_device_that_uses_a_feature_allows_it_for_all():
    old = {"spec": {"devices": [{"name": "a", "taints": [{"key": "k"}]}]}}
    new = {"spec": {"devices": [{"name": "a"}, {"name": "b", "taints": [{"key": "k"}]}]}}
    assert strip_disabled("resourceslices", copy.deepcopy(new), old, without("DRADeviceTaints")) == new


def test_the_allocation_time_is_never_dropped():
    claim = {"status": {"allocation": {"allocationTimestamp": "2026-01-02T03:04:05Z"}}}
    assert strip_disabled("resourceclaims", copy.deepcopy(claim), None, without("DRADeviceBindingConditions")) == claim


def test_a_request_of_which_nothing_is_left_is_refused(api, claim):
    request = {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}
    assert api.create("resourceclaims", claim(request), gates=without("DRAPrioritizedList")) == ["spec.devices.requests[0]"]
