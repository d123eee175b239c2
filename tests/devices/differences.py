"""Every recorded upstream answer that Dray deliberately gives differently. docs/fidelity.md explains each kind by its anchor."""

from __future__ import annotations

# kind (an anchor in docs/fidelity.md) -> the recorded cases
DIFFERENT: dict[str, frozenset[str]] = {
    # Same verdict, other devices or another order of them.
    "binding-conditions-by-device": frozenset(
        [
            "lexicographical-sorting-slices-with-binding-conditions",
            "partitionable-devices-with-binding-conditions-and-taints-tolerated",
            "partitionable-devices-with-binding-conditions-some-devices-no-conditions",
            "fuzz-00006",
            "fuzz-00015",
            "fuzz-00017",
            "fuzz-00029",
            "fuzz-00037",
            "fuzz-00061",
            "fuzz-00088",
            "fuzz-00121",
            "fuzz-00127",
            "fuzz-00141",
            "fuzz-00184",
            "fuzz-00200",
            "fuzz-00204",
            "fuzz-00226",
            "fuzz-00230",
            "fuzz-00243",
            "fuzz-00247",
            "fuzz-00271",
            "fuzz-00281",
            "fuzz-00282",
            "fuzz-00283",
            "fuzz-00296",
            "fuzz-00313",
            "fuzz-00319",
            "fuzz-00328",
            "fuzz-00331",
            "fuzz-00335",
            "fuzz-00337",
            "fuzz-00383",
            "fuzz-00386",
            "fuzz-00398",
            "fuzz-00401",
            "fuzz-00465",
            "fuzz-00485",
            "fuzz-00495",
        ]
    ),
    # Another verdict: the devices without groups stay usable.
    "compatibility-groups-off": frozenset(["compatibility-groups-disabled-skips-ungrouped-device-in-grouped-pool", "fuzz-00285"]),
}

# All mode meets a pool that cannot be read: upstream gives up on the pod, Dray on this node ("nodeError").
ALL_IS_A_NODE_ERROR = "all-devices-of-an-unreadable-pool"


def kind_of(case: str) -> str | None:
    return next((kind for kind, cases in DIFFERENT.items() if case in cases), None)
