"""Claims whose pods are done, seen from the API: users leave, devices are given back, finalizers go."""

from __future__ import annotations

import copy

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.resource import FINALIZER
from dray.cluster.metrics import Recorder
from dray.cluster.port import Refused, Unreachable
from dray.controllers.claims import ClaimsController
from tests.controllers.claims_cluster import Cluster, owned_by


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class TestPodsThatAreDoneLeaveTheirClaims:
    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_the_last_one_frees_the_devices_and_a_generated_claim_goes(self, cluster: Cluster, phase: str) -> None:
        cluster.given_claim("made", pods=("train",), **owned_by("train"))
        cluster.pod(status={"phase": phase, "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]})
        cluster.settle()
        assert cluster.claim("made") is None
        first = next(write for write in cluster.written if write.kind == RESOURCE_CLAIMS)
        assert first.body["status"]["allocation"] is None
        assert first.resource_version

    def test_a_generated_claim_that_was_never_used_goes_with_its_pod_although_it_has_its_finalizer(
        self, cluster: Cluster
    ) -> None:
        cluster.template()
        cluster.pod()
        cluster.settle()
        (claim,) = cluster.claims()
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        del cluster.api.objects[PODS, "ns/train"]
        cluster.api.put(RESOURCE_CLAIMS, claim | {"metadata": claim["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        cluster.settle()
        assert cluster.claims() == []

    def test_a_shared_claim_stays_allocated_for_the_others(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("a", "b"))
        cluster.pod("a", {"name": "gpu", "resourceClaimName": "shared"}, status={"phase": "Succeeded"})
        cluster.pod("b", {"name": "gpu", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        claim = cluster.claim("shared")
        assert claim is not None
        assert [who["name"] for who in claim["status"]["reservedFor"]] == ["b"]
        assert "allocation" in claim["status"]

    def test_a_claim_of_the_user_is_deallocated_and_kept(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        cluster.pod("train", {"name": "gpu", "resourceClaimName": "shared"}, status={"phase": "Succeeded"})
        cluster.settle()
        claim = cluster.claim("shared")
        assert claim is not None
        assert claim["status"] == {}
        assert not claim["metadata"].get("finalizers")

    def test_a_pod_deleted_before_it_had_a_node_is_done(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        cluster.pod("train", {"name": "g", "resourceClaimName": "shared"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        cluster.settle()
        assert "allocation" not in cluster.claim("shared")["status"]  # type: ignore[index]

    def test_a_pod_that_is_being_deleted_on_a_node_still_runs(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        cluster.pod("train", {"name": "g", "resourceClaimName": "shared"}, metadata=deleting, spec={"nodeName": "n"})
        cluster.settle()
        assert cluster.written == []

    def test_a_deleted_pod_is_known_to_be_gone(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        cluster.pod("train", {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        del cluster.api.objects[PODS, "ns/train"]
        cluster.settle()
        assert "allocation" not in cluster.claim("shared")["status"]  # type: ignore[index]
        assert all(write.kind == RESOURCE_CLAIMS for write in cluster.written)

    def test_a_pod_with_only_an_extended_resource_claim(self, cluster: Cluster) -> None:
        owner = owned_by("train")["ownerReferences"]
        special = {"resource.kubernetes.io/extended-resource-claim": "true"}
        cluster.given_claim("special", pods=("train",), ownerReferences=owner, annotations=special)
        body = {"metadata": {"name": "train"}, "spec": {}}
        cluster.api.put(
            PODS, {**body, "status": {"phase": "Succeeded", "extendedResourceClaimStatus": {"resourceClaimName": "special"}}}
        )
        cluster.settle()
        assert cluster.claims() == []


class TestAConsumerThatTheWatchDoesNotShow:
    def behind(self, cluster: Cluster) -> None:
        for change in cluster.world.replace(RESOURCE_CLAIMS, copy.deepcopy(cluster.api.all(RESOURCE_CLAIMS))):
            cluster.controller.observe(change, cluster.now)

    def test_stays_when_the_api_server_has_it(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        cluster.pod("train", {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        self.behind(cluster)
        (question,) = cluster.step(seen=False)
        assert (question.kind, question.body) == (PODS, {})
        assert cluster.step(seen=False) == []
        assert len(cluster.claim("shared")["status"]["reservedFor"]) == 1  # type: ignore[index]

    @pytest.mark.parametrize("other", [False, True])
    def test_goes_when_the_api_server_has_none_or_another_of_that_name(self, cluster: Cluster, other: bool) -> None:
        cluster.given_claim(pods=("train",))
        if other:
            cluster.pod("train", metadata={"uid": "another"})
        self.behind(cluster)
        cluster.step(seen=False)
        cluster.step()
        assert "reservedFor" not in cluster.claim("shared")["status"]  # type: ignore[index]

    def test_is_asked_for_again_when_there_was_no_answer(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        self.behind(cluster)
        cluster.refuse["status"] = Unreachable("gone")
        cluster.step()
        assert cluster.step() == []
        cluster.now += 1
        cluster.settle()
        assert "allocation" not in cluster.claim("shared")["status"]  # type: ignore[index]

    def test_is_never_removed_when_it_is_not_a_pod(self, cluster: Cluster) -> None:
        claim = cluster.given_claim()
        claim["status"]["reservedFor"] = [{"apiGroup": "x.io", "resource": "jobs", "name": "j", "uid": "1"}]
        cluster.settle()
        assert cluster.written == []


class TestAClaimThatNobodyUses:
    def test_stays_allocated_when_nobody_ever_did(self, cluster: Cluster) -> None:
        cluster.given_claim()
        cluster.settle()
        assert cluster.written == []

    def test_is_freed_and_let_go_when_it_is_deleted(self, cluster: Cluster) -> None:
        cluster.given_claim(deletionTimestamp="2026-01-01T00:00:00Z")
        cluster.settle()
        assert cluster.claim("shared") is None

    def test_and_is_being_allocated_keeps_the_finalizer_that_comes_first(self, cluster: Cluster) -> None:
        cluster.given_claim(allocated=False, finalizers=[FINALIZER])
        cluster.settle()
        assert cluster.written == []

    def test_other_finalizers_stay(self, cluster: Cluster) -> None:
        cluster.given_claim(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["mine/x", FINALIZER])
        cluster.settle()
        assert cluster.claim("shared")["metadata"]["finalizers"] == ["mine/x"]  # type: ignore[index]

    def test_is_left_to_the_garbage_collector_when_its_pod_is_unknown(self, cluster: Cluster) -> None:
        cluster.given_claim("made", allocated=False, **owned_by("vanished"))
        cluster.settle()
        assert cluster.written == []

    def test_goes_when_a_new_pod_has_the_name_of_its_pod(self, cluster: Cluster) -> None:
        cluster.given_claim("made", allocated=False, **owned_by("train"))
        cluster.pod("train", {"name": "x", "resourceClaimName": "y"}, metadata={"uid": "another"})
        cluster.settle()
        assert cluster.claim("made") is None

    def test_can_be_allocated_again_before_its_finalizer_is_gone(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("train",))
        cluster.pod("train", {"name": "g", "resourceClaimName": "shared"}, status={"phase": "Succeeded"})
        cluster.deliver()
        cluster.step()  # deallocated; now a scheduler is faster than the removal of the finalizer
        cluster.given_claim(pods=("next",))
        cluster.pod("next", {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        claim = cluster.claim("shared")
        assert claim is not None
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert "allocation" in claim["status"]


class TestAPodThatBypassedTheScheduler:
    def test_gets_the_allocated_claim_reserved(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("a",))
        for name in ("a", "b"):
            cluster.pod(name, {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        reserved = cluster.claim("shared")["status"]["reservedFor"]  # type: ignore[index]
        assert {"resource": "pods", "name": "b", "uid": "uid-b"} in reserved

    def test_so_does_one_with_only_an_extended_resource_claim(self, cluster: Cluster) -> None:
        """Its reservation was taken away while it was being bound."""
        special = {"resource.kubernetes.io/extended-resource-claim": "true"}
        cluster.given_claim("special", ownerReferences=owned_by("b")["ownerReferences"], annotations=special)
        cluster.settle()
        status = {"phase": "Pending", "extendedResourceClaimStatus": {"resourceClaimName": "special"}}
        cluster.api.put(PODS, {"metadata": {"name": "b"}, "spec": {"nodeName": "n"}, "status": status})
        cluster.settle()
        assert [who["name"] for who in cluster.claim("special")["status"]["reservedFor"]] == ["b"]  # type: ignore[index]

    def test_but_never_an_allocation(self, cluster: Cluster) -> None:
        cluster.given_claim(allocated=False)
        cluster.pod("b", {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        assert cluster.written == []

    def test_and_a_pod_without_a_node_is_left_to_the_scheduler(self, cluster: Cluster) -> None:
        cluster.given_claim()
        cluster.pod("b", {"name": "g", "resourceClaimName": "shared"})
        cluster.settle()
        assert cluster.written == []

    def test_no_more_than_256_pods_share_a_claim(self, cluster: Cluster) -> None:
        names = tuple(f"p{number}" for number in range(258))
        cluster.given_claim(pods=names[:255])
        for name in names:
            cluster.pod(name, {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.settle()
        assert len(cluster.claim("shared")["status"]["reservedFor"]) == 256  # type: ignore[index]

    def test_a_conflict_is_decided_again_from_what_is_true_now(self, cluster: Cluster) -> None:
        cluster.given_claim(pods=("a",))
        for name in ("a", "b"):
            cluster.pod(name, {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.deliver()
        cluster.given_claim(pods=("a", "c"))
        cluster.pod("c", {"name": "g", "resourceClaimName": "shared"}, spec={"nodeName": "n"})
        cluster.step()
        cluster.settle()
        reserved = cluster.claim("shared")["status"]["reservedFor"]  # type: ignore[index]
        assert {who["name"] for who in reserved} == {"a", "b", "c"}


class TestNumbers:
    def test_creates_are_counted_by_how_they_end(self) -> None:
        meter, cluster = Recorder(), Cluster()
        cluster.controller = ClaimsController(cluster.world, meter=meter)
        cluster.template(request={"name": "gpu", "exactly": {"deviceClassName": "gpu", "adminAccess": True}})
        cluster.pod()
        cluster.refuse["create"] = Refused(500, "InternalError", "no")
        cluster.settle()
        name = "dynamic_resource_allocation_resourceclaim_creates_total"
        assert meter.counters == {
            (name, ("failure", "true", "", "Pod")): 1,
            (name, ("success", "true", "", "Pod")): 1,
        }

    def test_the_gauge_follows_and_goes_back_to_nothing(self) -> None:
        meter, cluster = Recorder(), Cluster()
        cluster.controller = ClaimsController(cluster.world, meter=meter)
        cluster.given_claim("a")
        cluster.settle()
        labels = ("dynamic_resource_allocation_resource_claims", ("true", "false", ""))
        assert meter.gauges[labels] == 1
        del cluster.api.objects[RESOURCE_CLAIMS, "ns/a"]
        cluster.now += 60
        cluster.settle()
        assert meter.gauges[labels] == 0

    def test_the_gauge_follows_where_nothing_else_happens_for_a_long_time(self) -> None:
        meter, cluster = Recorder(), Cluster()
        cluster.controller = ClaimsController(cluster.world, meter=meter)
        cluster.settle()
        cluster.given_claim("a")
        cluster.settle()
        assert meter.gauges["dynamic_resource_allocation_resource_claims", ("true", "false", "")] == 1
        assert cluster.controller.wake() is None

    def test_the_census_says_what_there_is(self, cluster: Cluster) -> None:
        cluster.given_claim("a")
        cluster.given_claim("b", allocated=False, **owned_by("vanished"))
        cluster.deliver()
        assert dict(cluster.controller.census()) == {
            ("true", "false", ""): 1,
            ("false", "false", "resource_claim_template"): 1,
        }


def test_ten_thousand_pods_without_claims_cost_nothing(cluster: Cluster) -> None:
    for number in range(10_000):
        cluster.api.put(PODS, {"metadata": {"name": f"p{number}"}, "spec": {}})
    cluster.deliver()
    assert cluster.controller.act(cluster.now) == []
    assert cluster.controller.wake() is None
