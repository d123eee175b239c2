"""Who may write which part of a claim's status: bindings, and the devices of a driver on a node."""

from __future__ import annotations

from typing import Any

import pytest

from dray.apiserver.authentication.users import AUTHENTICATED, User
from tests.apiserver.access.conftest import BOB, Policed, rule, user
from tests.apiserver.conftest import CLAIMS, Json

GROUP = "resource.k8s.io"
DRIVER = {"kind": "ServiceAccount", "name": "driver", "namespace": "default"}


def on(node: str) -> User:
    extra = (("authentication.kubernetes.io/node-name", (node,)),)
    return User("system:serviceaccount:default:driver", (AUTHENTICATED,), "", extra)


def allocation(node: str = "n1") -> Json:
    result = {"request": "r", "driver": "a.example.com", "pool": "p", "device": "d"}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    other = result | {"driver": "b.example.com"}
    return {"devices": {"results": [result, other]}, "nodeSelector": {"nodeSelectorTerms": [named]}}


@pytest.fixture
def cluster() -> Policed:
    """A claim, and roles that allow writing the status but no part of it in particular."""
    made = Policed()
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    made.post(CLAIMS, {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": [request]}}})
    made.role("status", rule("update patch", "resourceclaims/status", GROUP), namespace="")
    made.bind("status", user(), DRIVER, namespace="")
    return made


def write(cluster: Policed, status: Json, **more: Any) -> Json:
    return cluster.patch(f"{CLAIMS}/claim/status", {"status": status}, **more)


def devices(*drivers: str) -> Json:
    return {"devices": [{"driver": f"{name}.example.com", "pool": "p", "device": "d", "data": {"x": 1}} for name in drivers]}


def test_allocations_and_reservations_need_binding_everywhere(cluster: Policed) -> None:
    found = write(cluster, {"allocation": allocation()}, user=BOB, code=422)
    assert (
        'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch"'
        in found["message"]
    )
    cluster.role("local", rule("update patch", "resourceclaims/binding", GROUP))
    cluster.bind("local", user())
    write(cluster, {"allocation": allocation()}, user=BOB, code=422)
    cluster.role("everywhere", rule("update patch", "resourceclaims/binding", GROUP), namespace="")
    cluster.bind("everywhere", user(), namespace="")
    write(cluster, {"allocation": allocation()}, user=BOB)


def test_a_driver_on_the_allocated_node_writes_its_own_devices_only(cluster: Policed) -> None:
    write(cluster, {"allocation": allocation()})
    driver = rule("associated-node:patch", "resourceclaims/driver", GROUP, resourceNames=["a.example.com"])
    cluster.role("driver", driver, namespace="")
    cluster.bind("driver", DRIVER, namespace="")
    write(cluster, devices("a"), user=on("n1"))
    found = write(cluster, devices("a", "b"), user=on("n1"), code=422)
    assert 'requires resource="resourceclaims/driver", verb="[associated-node:patch arbitrary-node:patch]"' in found["message"]
    write(cluster, {"devices": []}, user=on("n2"), code=422)


def test_a_controller_may_write_from_anywhere(cluster: Policed) -> None:
    write(cluster, {"allocation": allocation()})
    cluster.role("driver", rule("arbitrary-node:patch", "resourceclaims/driver", GROUP))
    cluster.bind("driver", user())
    write(cluster, devices("a", "b"), user=BOB)


def test_what_does_not_change_needs_no_right(cluster: Policed) -> None:
    write(cluster, {"allocation": allocation(), **devices("a")})
    write(cluster, {"allocation": allocation()}, user=BOB)
