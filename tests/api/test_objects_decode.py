"""Typed objects: null is absent, unknown fields are ignored, errors name the object and the field."""

from __future__ import annotations

import pytest

from dray.api.core import Pod
from dray.api.meta import DecodeError, decode
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim, ResourceSlice


def test_null_counts_as_absent_as_it_does_for_go() -> None:
    pod = decode(
        Pod, b'{"metadata":{"name":"p","creationTimestamp":null,"labels":null},"spec":{"containers":null,"tolerations":[null]}}'
    )
    assert pod.metadata.labels == {}
    assert pod.spec.containers == ()


def test_unknown_fields_do_not_matter() -> None:
    assert decode(Pod, {"metadata": {"name": "p", "future": 1}, "spec": {"later": {"x": []}}}).key == "p"


def test_an_object_of_the_wrong_shape_is_named_with_its_field() -> None:
    with pytest.raises(DecodeError, match=r"ResourceClaim ns/c: .*spec\.devices\.requests"):
        decode(ResourceClaim, {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {"requests": [{"name": 5}]}}})


def test_a_number_that_no_field_could_hold_is_a_wrong_shape_too() -> None:
    with pytest.raises(DecodeError, match="ResourceClaim: Number out of range"):
        decode(ResourceClaim, b'{"spec": {"devices": {"requests": [{"name": "r", "exactly": {"count": 1e999}}]}}}')


def test_names_that_are_not_plain_camel_case_are_read() -> None:
    claim = decode(
        ResourceClaim,
        {
            "metadata": {"name": "c"},
            "status": {"allocation": {"devices": {"results": [{"shareID": "u", "compatibilityGroups": {"gpu-0": ["mig"]}}]}}},
        },
    )
    assert claim.status.allocation is not None
    result = claim.status.allocation.devices.results[0]
    assert (result.share_id, result.compatibility_groups) == ("u", {"gpu-0": ("mig",)})
    device = decode(
        ResourceSlice, {"spec": {"devices": [{"name": "d", "attributes": {"a": {"int": 3}, "b": {"bool": False}}}]}}
    ).spec.devices[0]
    assert (device.attributes["a"].int_, device.attributes["b"].bool_) == (3, False)


def test_reason_codes_are_a_closed_list() -> None:
    with pytest.raises(ValueError, match="Whim"):
        Reason("Whim")
