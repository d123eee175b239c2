"""Every limit of a ResourceSlice at its edge: the last value that is accepted, and the first that is not."""

from __future__ import annotations

from typing import Any

import pytest

TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}
TERM = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}


def devices(count: int, **first: Any) -> list[dict[str, Any]]:
    return [{"name": "d0", **first}] + [{"name": f"d{index}"} for index in range(1, count)]


def counters(count: int = 1) -> dict[str, Any]:
    return {f"c{index}": {"value": "1"} for index in range(count)}


def consumes(*sets: str, **more: Any) -> list[dict[str, Any]]:
    return [{"counterSet": name, "counters": counters(), **more} for name in sets]


def conditions(count: int, prefix: str = "ready") -> list[str]:
    return [f"example.com/{prefix}{index}" for index in range(count)]


def attributes(count: int) -> dict[str, Any]:
    return {f"a{index}": {"int": index} for index in range(count)}


SPECS = [
    ("128 devices", {"devices": devices(128)}, {"devices": devices(129)}, "spec.devices"),
    ("64 with a taint", {"devices": devices(64, taints=[TAINT])}, {"devices": devices(65, taints=[TAINT])}, "spec.devices"),
    (
        "64 with counters",
        {"devices": devices(64, consumesCounters=consumes("a"))},
        {"devices": devices(65, consumesCounters=consumes("a"))},
        "spec.devices",
    ),
    (
        "64 with list attributes",
        {"devices": devices(64, attributes={"a": {"ints": [1]}})},
        {"devices": devices(65, attributes={"a": {"ints": [1]}})},
        "spec.devices",
    ),
    (
        "8 counter sets",
        {"devices": None, "sharedCounters": [{"name": f"s{i}", "counters": counters()} for i in range(8)]},
        {"devices": None, "sharedCounters": [{"name": f"s{i}", "counters": counters()} for i in range(9)]},
        "spec.sharedCounters",
    ),
    (
        "32 counters",
        {"devices": None, "sharedCounters": [{"name": "s", "counters": counters(32)}]},
        {"devices": None, "sharedCounters": [{"name": "s", "counters": counters(33)}]},
        "spec.sharedCounters[0].counters",
    ),
    ("63 characters of driver", {"driver": "a" * 63}, {"driver": "a" * 64}, "spec.driver"),
    (
        "253 characters of pool",
        {"pool": {"name": "a" * 126 + "/" + "b" * 126, "generation": 1, "resourceSliceCount": 1}},
        {"pool": {"name": "a" * 126 + "/" + "b" * 127, "generation": 1, "resourceSliceCount": 1}},
        "spec.pool.name",
    ),
    (
        "generation 0",
        {"pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}},
        {"pool": {"name": "p", "generation": -1, "resourceSliceCount": 1}},
        "spec.pool.generation",
    ),
    (
        "one slice",
        {"pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
        {"pool": {"name": "p", "generation": 1, "resourceSliceCount": 0}},
        "spec.pool.resourceSliceCount",
    ),
    (
        "one selector term",
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [TERM]}},
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [TERM, TERM]}},
        "spec.nodeSelector.nodeSelectorTerms",
    ),
    (
        "skipped prepare needs skipped unprepare",
        {"skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"]},
        {"skipNodeOperations": ["NodePrepareResources"]},
        "spec.skipNodeOperations",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "path"), [case[1:] for case in SPECS], ids=[case[0] for case in SPECS])
def test_a_slice_within_its_limits_is_accepted_and_beyond_refused(api, new_slice, right, wrong, path):
    assert api.create("resourceslices", new_slice(**right)) == []
    assert api.create("resourceslices", new_slice(**wrong)) == [path]


DEVICES = [
    ("16 taints", {"taints": [TAINT] * 16}, {"taints": [TAINT] * 17}, "taints"),
    (
        "2 counter sets",
        {"consumesCounters": consumes("a", "b")},
        {"consumesCounters": consumes("a", "b", "c")},
        "consumesCounters",
    ),
    (
        "2 compatibility groups",
        {"consumesCounters": consumes("a", compatibilityGroups=["x", "y"])},
        {"consumesCounters": consumes("a", compatibilityGroups=["x", "y", "z"])},
        "consumesCounters[0].compatibilityGroups",
    ),
    (
        "4 binding conditions",
        {"bindingConditions": conditions(4), "bindingFailureConditions": conditions(4, "failed")},
        {"bindingConditions": conditions(5), "bindingFailureConditions": conditions(4, "failed")},
        "bindingConditions",
    ),
    (
        "4 failure conditions",
        {"bindingConditions": conditions(1), "bindingFailureConditions": conditions(4, "failed")},
        {"bindingConditions": conditions(1), "bindingFailureConditions": conditions(5, "failed")},
        "bindingFailureConditions",
    ),
    (
        "64 bytes of text",
        {"attributes": {"a": {"string": "x" * 64}}},
        {"attributes": {"a": {"string": "x" * 65}}},
        "attributes[a].string",
    ),
    (
        "64 bytes of text in a list",
        {"attributes": {"a": {"strings": ["x" * 64]}}},
        {"attributes": {"a": {"strings": ["y", "x" * 65]}}},
        "attributes[a].strings[1]",
    ),
    (
        "semver",
        {"attributes": {"a": {"version": "1.0.0-rc.1+b"}}},
        {"attributes": {"a": {"version": "v1.0.0"}}},
        "attributes[a].version",
    ),
    (
        "semver without leading zeros",
        {"attributes": {"a": {"version": "1.0.0"}}},
        {"attributes": {"a": {"version": "1.0.01"}}},
        "attributes[a].version",
    ),
    ("32 characters of name", {"attributes": {"a" * 32: {"int": 1}}}, {"attributes": {"a" * 33: {"int": 1}}}, "attributes"),
    (
        "63 characters of domain",
        {"attributes": {"d" * 63 + "/a": {"int": 1}}},
        {"attributes": {"d" * 64 + "/a": {"int": 1}}},
        "attributes",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "path"), [case[1:] for case in DEVICES], ids=[case[0] for case in DEVICES])
def test_a_device_within_its_limits_is_accepted_and_beyond_refused(api, device, right, wrong, path):
    assert api.create("resourceslices", device(**right)) == []
    assert api.create("resourceslices", device(**wrong)) == [f"spec.devices[0].{path}"]


def test_attributes_and_capacities_are_32_together(api, device):
    capacity = {f"c{index}": {"value": "1"} for index in range(12)}
    assert api.create("resourceslices", device(attributes=attributes(20), capacity=capacity)) == []
    assert api.create("resourceslices", device(attributes=attributes(21), capacity=capacity)) == ["spec.devices[0]"]


def test_attribute_values_are_48_where_each_element_of_a_list_counts(api, device):
    assert api.create("resourceslices", device(attributes={"a": {"ints": list(range(47))}, "b": {"int": 1}})) == []
    assert api.create("resourceslices", device(attributes={"a": {"ints": list(range(48))}, "b": {"int": 1}})) == [
        "spec.devices[0]"
    ]


@pytest.mark.parametrize("value", [{}, {"int": 1, "bool": True}, {"int": 1, "ints": [1]}])
def test_an_attribute_has_exactly_one_value(api, device, value):
    assert api.create("resourceslices", device(attributes={"a": value})) == ["spec.devices[0].attributes[a]"]


def test_zero_and_false_are_values(api, device):
    assert api.create("resourceslices", device(attributes={"a": {"int": 0}, "b": {"bool": False}, "c": {"string": ""}})) == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"nodeName": None}, "spec"),
        ({"allNodes": True}, "spec"),
        ({"nodeName": None, "allNodes": True, "perDeviceNodeSelection": True}, "spec"),
        ({"nodeName": ""}, "spec.nodeName"),
        ({"nodeName": None, "allNodes": False}, "spec.allNodes"),
        ({"nodeName": None, "perDeviceNodeSelection": False}, "spec.perDeviceNodeSelection"),
    ],
)
def test_exactly_one_way_to_say_which_nodes(api, new_slice, spec, path):
    assert path in api.create("resourceslices", new_slice(**spec))


def test_devices_name_their_nodes_only_if_the_slice_says_so(api, new_slice):
    here = [{"name": "a", "nodeName": "n"}]
    assert api.create("resourceslices", new_slice(devices=here)) == ["spec.devices[0]"]
    assert api.create("resourceslices", new_slice(nodeName=None, perDeviceNodeSelection=True, devices=here)) == []
    bare = [{"name": "a"}]
    assert api.create("resourceslices", new_slice(nodeName=None, perDeviceNodeSelection=True, devices=bare)) == [
        "spec.devices[0]"
    ]


def test_devices_and_counters_are_in_different_slices(api, new_slice):
    assert api.create("resourceslices", new_slice(sharedCounters=[{"name": "s", "counters": counters()}])) == ["spec"]


@pytest.mark.parametrize(
    ("ready", "failed", "path"),
    [
        (["a"], None, "bindingFailureConditions"),
        (None, ["a"], "bindingConditions"),
        (["a", "a"], ["b"], "bindingConditions[1]"),
        (["a", "b"], ["b"], "bindingFailureConditions[0]"),
        (["a b"], ["b"], "bindingConditions[0]"),
    ],
)
def test_binding_conditions_come_with_failure_conditions_and_do_not_overlap(api, device, ready, failed, path):
    fields = {"bindingConditions": ready, "bindingFailureConditions": failed}
    found = api.create("resourceslices", device(**{key: value for key, value in fields.items() if value}))
    assert found == [f"spec.devices[0].{path}"]


def test_names_are_unique(api, new_slice):
    assert api.create("resourceslices", new_slice(devices=[{"name": "a"}, {"name": "a"}])) == ["spec.devices[1]"]
    same = [{"name": "s", "counters": counters()}] * 2
    assert api.create("resourceslices", new_slice(devices=None, sharedCounters=same)) == ["spec.sharedCounters[1]"]
    twice = [{"name": "a", "consumesCounters": consumes("s", "s")}]
    assert api.create("resourceslices", new_slice(devices=twice)) == ["spec.devices[0].consumesCounters[1]"]


@pytest.mark.parametrize(("field", "value"), [("driver", "other"), ("nodeName", "other"), ("pool", {"name": "other"})])
def test_driver_node_and_pool_never_change(api, new_slice, field, value):
    old = new_slice()
    changed = {**old["spec"][field], **value} if field == "pool" else value
    path = "spec.pool.name" if field == "pool" else f"spec.{field}"
    assert api.update("resourceslices", new_slice(**{field: changed}), old) == [path]


def test_the_node_selector_may_change(api, new_slice):
    old = new_slice(nodeName=None, nodeSelector={"nodeSelectorTerms": [TERM]})
    other = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
    assert api.update("resourceslices", new_slice(nodeName=None, nodeSelector={"nodeSelectorTerms": [other]}), old) == []


def test_a_partition_type_is_an_attribute_of_all_devices_with_counters(api, new_slice):
    gates = api.gates.updated({"DRAResourcePoolStatus": True, "DRAPartitionableDevicesType": True})
    typed = [{"name": "a", "consumesCounters": consumes("s"), "attributes": {"type": {"string": "1g"}}}]
    right = new_slice(partitionTypeAttribute="gpu.example.com/type", devices=typed)
    assert api.create("resourceslices", right, gates=gates) == []
    untyped = [{"name": "a", "consumesCounters": consumes("s")}]
    wrong = new_slice(partitionTypeAttribute="gpu.example.com/type", devices=untyped)
    assert api.create("resourceslices", wrong, gates=gates) == ["spec.devices[0].attributes[gpu.example.com/type]"]
