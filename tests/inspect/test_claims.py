"""``dray claims``: what each claim holds and for whom; an orphan is what nobody needs, and never what somebody uses."""

from __future__ import annotations

import json

import pytest

from dray.api.resource import FINALIZER
from tests.inspect.conftest import Plain, Run, claim, healthy, pod, result

OLD = "2026-01-01T00:00:00Z"


def rows(dray: Run, objects: list[Plain], *arguments: str) -> dict[str, Plain]:
    answer = dray("claims", objects, "-o", "json", *arguments)
    assert answer.exit_code == 0
    return {row["name"]: row for row in json.loads(answer.stdout)["claims"]}


def made_for(name: str) -> Plain:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    return {"ownerReferences": [owner], "creationTimestamp": OLD}


class TestAClaim:
    def test_is_shown_with_devices_users_and_state(self, dray: Run) -> None:
        row = rows(dray, [*healthy(), claim("waits")])
        assert (row["used"]["state"], row["used"]["devices"], row["used"]["users"]) == (
            "in use",
            ["gpu.example.com/n1/g0"],
            ["train"],
        )
        assert row["waits"]["state"] == "pending"
        assert row["used"]["orphan"] == row["waits"]["orphan"] == ""

    def test_people_see_a_table(self, dray: Run) -> None:
        told = dray("claims", healthy()).stdout
        assert "gpu.example.com/n1/g0" in told
        assert "1 claim: 1 in use." in told

    def test_of_another_namespace_can_be_left_out(self, dray: Run) -> None:
        assert rows(dray, healthy(), "-n", "other") == {}
        assert dray("claims", healthy(), "-n", "other").stdout == "No claims in namespace other.\n"


class TestAnOrphan:
    def orphan(self, dray: Run, *objects: Plain) -> dict[str, str]:
        return {name: row["orphan"] for name, row in rows(dray, [*objects, pod("other")], "--orphans").items()}

    def test_is_none_where_no_pods_were_read(self, dray: Run) -> None:
        """Every claim would look as if its pods were gone."""
        answer = dray("claims", [claim("left", result("g0"), pods=("here",), creationTimestamp=OLD)], "--orphans")
        assert answer.exit_code == 2
        assert "the files have no pods, which this command needs" in answer.stderr

    def test_is_reserved_for_a_pod_that_is_gone(self, dray: Run) -> None:
        found = self.orphan(dray, claim("left", result("g0"), pods=("gone",), creationTimestamp=OLD))
        assert found == {"left": "is reserved for a pod that is gone or ended"}

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_is_reserved_for_pods_that_have_ended(self, dray: Run, phase: str) -> None:
        left = claim("left", result("g0"), pods=("a", "b"), creationTimestamp=OLD)
        found = self.orphan(dray, left, pod("a", "left", node="n1", phase=phase), pod("b", "left", node="n1", phase=phase))
        assert found == {"left": "is reserved for pods that are gone or ended"}

    def test_is_allocated_and_nobody_uses_it(self, dray: Run) -> None:
        assert self.orphan(dray, claim("left", result("g0"), creationTimestamp=OLD)) == {
            "left": "is allocated, and no pod uses it"
        }

    def test_was_made_for_a_pod_that_is_gone(self, dray: Run) -> None:
        found = self.orphan(dray, claim("left", **made_for("gone")))
        assert found == {"left": "was made for pod gone, which is gone or has ended"}

    def test_is_being_deleted_and_a_finalizer_keeps_it(self, dray: Run) -> None:
        left = claim("left", finalizers=[FINALIZER], deletionTimestamp=OLD, creationTimestamp=OLD)
        assert self.orphan(dray, left) == {"left": f"is being deleted, and only {FINALIZER} keeps it"}

    def test_is_never_one_that_a_pod_uses(self, dray: Run) -> None:
        shared = claim("shared", result("g0"), pods=("gone", "here"), creationTimestamp=OLD)
        assert self.orphan(dray, shared, pod("here", "shared", node="n1")) == {}

    def test_is_never_one_that_a_pod_on_a_node_names_although_nobody_reserved_it(self, dray: Run) -> None:
        named = claim("named", result("g0"), creationTimestamp=OLD)
        assert self.orphan(dray, named, pod("here", "named", node="n1")) == {}

    def test_is_never_one_with_a_user_that_is_not_a_pod(self, dray: Run) -> None:
        foreign = claim("foreign", result("g0"), creationTimestamp=OLD)
        foreign["status"]["reservedFor"] = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}]
        assert self.orphan(dray, foreign) == {}

    def test_a_later_pod_of_the_name_is_not_the_user(self, dray: Run) -> None:
        left = claim("left", result("g0"), pods=("train",), creationTimestamp=OLD)
        later = pod("train", node="n1")
        later["metadata"]["uid"] = "another"
        assert list(self.orphan(dray, left, later)) == ["left"]

    def test_of_none_it_is_said(self, dray: Run) -> None:
        assert dray("claims", healthy(), "--orphans").stdout == "No orphaned claims.\n"
