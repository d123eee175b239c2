"""A name is suggested for one that is missing only where it is much like it."""

from __future__ import annotations

import pytest

from dray.explain.missing import nearest

CLASSES = ["fabric-gpu.dray.dev", "gpu.dray.dev", "mig-1g.dray.dev", "nic.dray.dev"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("mig-2g.dray.dev", "mig-1g.dray.dev"),
        ("gup.dray.dev", "gpu.dray.dev"),
        ("fabrik-gpus.dray.dev", "fabric-gpu.dray.dev"),
        ("gpu.dray.de", "gpu.dray.dev"),
        ("tensor.dray.dev", None),
        ("dpu-x.dray.dev", None),
        ("gpu.nvidia.com", None),
        ("", None),
    ],
)
def test_a_name_that_is_meant(written: str, meant: str | None) -> None:
    assert nearest(written, CLASSES) == meant


def test_a_name_that_only_shares_the_domain_is_not_meant() -> None:
    assert nearest("mig-7g.dray.dev", ["gpu.dray.dev", "nic.dray.dev"]) is None


def test_of_several_the_nearest_is_meant() -> None:
    assert nearest("training-set", ["training-sets-b", "training-sets"]) == "training-sets"
