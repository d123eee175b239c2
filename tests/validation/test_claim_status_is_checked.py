"""The status of a claim: allocation, reservations, and what drivers report."""

from __future__ import annotations

import pytest

SHARE = "7fb0b6f6-2b7c-4c3e-9a1b-0d1d2a3b4c5d"
CONDITION = {"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}


def result(**fields):
    return {"request": "r", "driver": "gpu.example.com", "pool": "pool-a", "device": "dev-0", **fields}


def allocated(*results, **more):
    return {"allocation": {"devices": {"results": list(results) or [result()], **more}}}


def consumer(number=0, **fields):
    return {"resource": "pods", "name": f"p{number}", "uid": f"u{number}", **fields}


def reported(**fields):
    return {**allocated(), "devices": [{"driver": "gpu.example.com", "pool": "pool-a", "device": "dev-0", **fields}]}


def conditions(count):
    return [{**CONDITION, "type": f"T{index}"} for index in range(count)]


@pytest.fixture
def update(api, claim):
    """What is refused when a claim with one status gets another."""

    def run(new, old=None, *, deleting=False, namespace=None):
        before, after = claim(), claim()
        before["status"], after["status"] = old or {}, new
        if deleting:
            for each in (before, after):
                each["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        return api.update("resourceclaims", after, before, subresource="status", namespace=namespace)

    return run


def test_an_allocation_can_be_set_and_cleared_but_not_changed(update):
    assert update(allocated()) == []
    assert update({}, allocated()) == []
    assert update(allocated(), allocated()) == []
    assert update(allocated(result(device="dev-1")), allocated()) == ["status.allocation"]


def test_reservations_need_an_allocation(update):
    assert update({**allocated(), "reservedFor": [consumer()]}) == []
    assert update({"reservedFor": [consumer()]}) == ["status.reservedFor"]
    assert update({"reservedFor": [consumer()]}, {**allocated(), "reservedFor": [consumer()]}) == ["status.reservedFor"]


def test_256_reservations_are_accepted_and_257_refused(update):
    assert update({**allocated(), "reservedFor": [consumer(i) for i in range(256)]}) == []
    assert update({**allocated(), "reservedFor": [consumer(i) for i in range(257)]}) == ["status.reservedFor"]


def test_a_claim_that_is_deleted_gets_no_new_reservations(update):
    one, two = {**allocated(), "reservedFor": [consumer()]}, {**allocated(), "reservedFor": [consumer(), consumer(1)]}
    assert update(two, one, deleting=True) == ["status.reservedFor"]
    assert update(one, two, deleting=True) == []


@pytest.mark.parametrize("field", ["resource", "name", "uid"])
def test_consumers_are_complete(update, field):
    assert update({**allocated(), "reservedFor": [consumer(**{field: ""})]}) == [f"status.reservedFor[0].{field}"]


def test_consumers_are_unique_by_uid(update):
    assert update({**allocated(), "reservedFor": [consumer(), consumer(name="other")]}) == ["status.reservedFor[1]"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"request": "nope"}, "request"),
        ({"driver": ""}, "driver"),
        ({"pool": ""}, "pool"),
        ({"device": "A_b"}, "device"),
        ({"shareID": "not-a-uuid"}, "shareID"),
        ({"shareID": SHARE.upper()}, "shareID"),
        ({"bindingConditions": ["a", "b", "c", "d", "e"], "bindingFailureConditions": ["f"]}, "bindingConditions"),
        ({"tolerations": [{"operator": "Like"}]}, "tolerations[0].operator"),
        ({"skipNodeOperations": ["NodePrepareResources"]}, "skipNodeOperations"),
        ({"compatibilityGroups": {"set": ["a", "b", "c"]}}, "compatibilityGroups[set]"),
    ],
)
def test_what_is_wrong_with_a_result_is_named(update, fields, path):
    assert update(allocated(result(**fields))) == [f"status.allocation.devices.results[0].{path}"]


def test_all_fields_of_a_result_are_accepted(update):
    full = result(
        adminAccess=False,
        bindingConditions=["example.com/ready"],
        bindingFailureConditions=["example.com/failed"],
        shareID=SHARE,
        consumedCapacity={"memory": "2Gi"},
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        skipNodeOperations=["*"],
        compatibilityGroups={"gpu-0": ["mig"]},
    )
    assert update(allocated(full)) == []


def test_32_results_and_64_configurations(update):
    assert update(allocated(*[result(device=f"d{i}") for i in range(32)])) == []
    assert update(allocated(*[result(device=f"d{i}") for i in range(33)])) == ["status.allocation.devices.results"]
    config = {"source": "FromClass", "opaque": {"driver": "d", "parameters": {}}}
    assert update(allocated(config=[config] * 64)) == []
    assert update(allocated(config=[config] * 65)) == ["status.allocation.devices.config"]
    assert update(allocated(config=[{**config, "source": "Else"}])) == ["status.allocation.devices.config[0].source"]


def test_admin_access_in_a_result_needs_a_labelled_namespace(update):
    admin = allocated(result(adminAccess=True))
    assert update(admin, namespace={}) == ["status.allocation.devices.results[0].adminAccess"]
    assert update(admin, namespace={"resource.kubernetes.io/admin-access": "true"}) == []


def test_drivers_report_about_allocated_devices_only(update):
    assert update(reported()) == []
    assert update(reported(device="dev-9")) == ["status.devices[0]"]
    twice = reported()
    twice["devices"] *= 2
    assert update(twice) == ["status.devices[1]"]


@pytest.mark.parametrize(
    ("right", "wrong", "path"),
    [
        ({"conditions": conditions(8)}, {"conditions": conditions(9)}, "conditions"),
        ({"data": {"a": "x" * 10_232}}, {"data": {"a": "x" * 10_233}}, "data"),
        ({"data": {}}, {"data": [1]}, "data"),
        (
            {"networkData": {"interfaceName": "x" * 256}},
            {"networkData": {"interfaceName": "x" * 257}},
            "networkData.interfaceName",
        ),
        (
            {"networkData": {"hardwareAddress": "x" * 128}},
            {"networkData": {"hardwareAddress": "x" * 129}},
            "networkData.hardwareAddress",
        ),
        (
            {"networkData": {"ips": [f"10.0.0.{i}/24" for i in range(16)]}},
            {"networkData": {"ips": [f"10.0.0.{i}/24" for i in range(17)]}},
            "networkData.ips",
        ),
        ({"networkData": {"ips": ["2001:db8::1/64"]}}, {"networkData": {"ips": ["2001:db8::1"]}}, "networkData.ips[0]"),
        (
            {"networkData": {"ips": ["10.0.0.1/24"]}},
            {"networkData": {"ips": ["10.0.0.1/24", "10.0.0.1/24"]}},
            "networkData.ips[1]",
        ),
    ],
)
def test_reports_of_drivers_are_limited(update, right, wrong, path):
    assert update(reported(**right)) == []
    assert update(reported(**wrong)) == [f"status.devices[0].{path}"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "not a word"}, "reason"),
        ({"status": "Maybe"}, "status"),
        ({"type": ""}, "type"),
        ({"lastTransitionTime": None}, "lastTransitionTime"),
    ],
)
def test_conditions_are_complete(update, fields, path):
    assert update(reported(conditions=[{**CONDITION, **fields}])) == [f"status.devices[0].conditions[0].{path}"]


def test_conditions_are_unique_by_type(update):
    assert update(reported(conditions=[CONDITION, CONDITION])) == ["status.devices[0].conditions[1]"]


def test_a_rule_has_at_most_8_conditions(api):
    def rule(count):
        return {"metadata": {"name": "r"}, "spec": {"taint": {}}, "status": {"conditions": conditions(count)}}

    assert api.update("devicetaintrules", rule(8), rule(0), subresource="status") == []
    assert api.update("devicetaintrules", rule(9), rule(0), subresource="status") == ["status.conditions"]
