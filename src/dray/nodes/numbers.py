"""What simulated kubelets count, under the names of a real kubelet; of all nodes of the process together."""

from __future__ import annotations

from typing import Final

from dray.cluster.metrics import Declared

ANY_DRIVER: Final = "<any>"

METRICS: Final[Declared] = {
    "dra_operations_duration_seconds": (
        "calls",
        ("operation_name", "is_error"),
        "How long handling all claims of a pod took: PrepareResources, UnprepareResources",
    ),
    "dra_grpc_operations_duration_seconds": (
        "calls",
        ("driver_name", "method_name", "grpc_status_code"),
        "How long calls of drivers took",
    ),
    "dra_resource_claims_in_use": ("gauge", ("driver_name",), "Claims in use on nodes, by driver, and of any driver"),
    "dra_node_prepare_skips_total": ("counter", ("driver_name",), "Calls of NodePrepareResources that were not needed"),
    "dra_node_unprepare_skips_total": ("counter", ("driver_name",), "Calls of NodeUnprepareResources that were not needed"),
    "kubelet_admission_rejections_total": ("counter", ("reason",), "Pods that were bound to a node and not taken"),
    "kubelet_pod_resources_endpoint_requests_total": ("counter", ("server_api_version",), "Requests about resources of pods"),
    **{
        f"kubelet_pod_resources_endpoint_{what}_{method}": (
            "counter",
            ("server_api_version",),
            f"{what.capitalize()} of {method} about resources of pods",
        )
        for what in ("requests", "errors")
        for method in ("list", "get", "get_allocatable")
    },
}
