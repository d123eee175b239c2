"""The admission rows of the behaviour notes: what the kubelet column says, ``dray numa check`` says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.cli.numa import _checked
from dray.numa.evaluate import Evaluators
from tests.numa.spec import admission_rows, expected_admit, expected_masks, needs_spec, question

# Best-effort and none are not the Topology Manager's to refuse: what fails there fails in a provider, which the answer for
# policies that align says nothing about.
PROVIDER_FAILS = {"K46", "K75"}
# Nothing is aligned: the row's mask is the kubelet's "anywhere".
NO_MASKS = {"K25"}


def check(name: str) -> dict[str, Any]:
    return _checked(json.dumps(question(name)).encode(), Evaluators())


@needs_spec
def test_all_rows_are_read() -> None:
    assert len(admission_rows()) == 81


@needs_spec
@pytest.mark.parametrize("name", admission_rows())
def test_the_verdict_is_the_kubelets(name: str) -> None:
    answer = check(name)
    assert answer["admit"] == (expected_admit(name) or name in PROVIDER_FAILS)


@needs_spec
@pytest.mark.parametrize("name", [name for name in admission_rows() if expected_masks(name) and name not in NO_MASKS])
def test_the_zones_are_the_kubelets(name: str) -> None:
    answer, masks = check(name), expected_masks(name)
    assert masks is not None
    told = answer if answer["handled"] else answer["predicted"]
    found = [[int(zone) for zone in mask] for mask in told["masks"]]
    assert found in (masks, masks[:1])  # the whole pod has one set, which the row repeats for each container
