"""Claims from templates, seen from the API: pods in, claims out, each once."""

from __future__ import annotations

import copy

import pytest

from dray.api.gates import Gates
from dray.api.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dray.api.resource import FINALIZER, POD_CLAIM_NAME
from dray.cluster.port import Refused, Unreachable
from dray.controllers.claim_templates import claim_name_base
from tests.controllers.claims_cluster import Cluster, Plain, owned_by


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class TestAClaimIsMadeFromItsTemplate:
    def test_with_name_owner_annotation_and_labels_and_the_pod_records_it(self, cluster: Cluster) -> None:
        cluster.template(labels={"team": "a"}, annotations={"note": "b"})
        cluster.pod()
        cluster.settle()
        (claim,) = cluster.claims()
        assert claim["metadata"]["name"].startswith("train-gpu-")
        assert claim["metadata"]["labels"] == {"team": "a"}
        assert claim["metadata"]["annotations"] == {"note": "b", POD_CLAIM_NAME: "gpu"}
        assert claim["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "uid-train", "controller": True}
        ]
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert cluster.statuses() == [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]

    def test_and_fields_that_dray_does_not_know_are_kept(self, cluster: Cluster) -> None:
        newer = cluster.template()
        cluster.pod()
        cluster.deliver()
        newer["spec"]["spec"]["devices"]["requests"][0]["exactly"]["somethingNew"] = {"a": 1}
        newer["metadata"]["resourceVersion"] = "1000000"
        cluster.observe(cluster.world.put(RESOURCE_CLAIM_TEMPLATES, newer))
        (create,) = (write for write in cluster.step() if write.verb == "create")
        assert create.body["spec"] == newer["spec"]["spec"]

    def test_and_the_template_is_not_changed(self, cluster: Cluster) -> None:
        template = cluster.template(annotations={"note": "b"})
        before = copy.deepcopy(template)
        cluster.pod()
        cluster.settle()
        assert template == before
        assert cluster.world.get(RESOURCE_CLAIM_TEMPLATES, "ns/one-gpu").spec.metadata.annotations == {"note": "b"}

    def test_several_entries_are_made_at_once_and_recorded_in_one_write_by_name(self, cluster: Cluster) -> None:
        cluster.template()
        entries = [{"name": name, "resourceClaimTemplateName": "one-gpu"} for name in ("b", "c", "a")]
        cluster.pod("train", *entries)
        cluster.deliver()
        assert [write.verb for write in cluster.step()] == ["create"] * 3
        (status,) = cluster.step()
        assert [entry["name"] for entry in status.body["status"]["resourceClaimStatuses"]] == ["a", "b", "c"]

    def test_an_entry_that_is_recorded_already_stays_in_the_list(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.given_claim("made", allocated=False, **owned_by("train", "old"))
        entries = [{"name": name, "resourceClaimTemplateName": "one-gpu"} for name in ("old", "new")]
        cluster.pod("train", *entries, status={"resourceClaimStatuses": [{"name": "old", "resourceClaimName": "made"}]})
        cluster.settle()
        sent = cluster.written[-1].body["status"]["resourceClaimStatuses"]
        assert [entry["name"] for entry in sent] == ["new", "old"]
        assert {"name": "old", "resourceClaimName": "made"} in cluster.statuses()
        assert len(cluster.claims()) == 2

    def test_direct_claims_and_entries_without_need_make_nothing(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod("direct", {"name": "gpu", "resourceClaimName": "shared"})
        cluster.pod("none", status={"resourceClaimStatuses": [{"name": "gpu"}]})
        cluster.settle()
        assert cluster.claims() == []

    def test_a_pod_that_is_being_deleted_or_has_ended_makes_nothing(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod("deleted", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={"nodeName": "n"})
        cluster.pod("ended", status={"phase": "Failed"})
        cluster.settle()
        assert cluster.claims() == []


class TestTheNameOfAGeneratedClaim:
    def test_is_pod_and_entry(self) -> None:
        assert claim_name_base("train", "gpu") == "train-gpu-"

    def test_is_cut_in_proportion_so_that_part_of_both_is_left(self) -> None:
        base = claim_name_base("p" * 60, "e" * 30)
        assert base == "p" * (60 * 57 // 92) + "-" + "e" * (30 * 57 // 92)
        assert len(base) + 5 <= 63

    def test_has_no_label_that_ends_in_a_dot_where_it_is_cut(self) -> None:
        assert claim_name_base("p" * 36 + "." + "q" * 23, "e" * 30).split("-")[0] == "p" * 36


class TestNothingIsMadeTwice:
    def test_a_claim_whose_recording_failed_is_used_again(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.refuse["status"] = Unreachable("gone")
        cluster.settle()
        assert len(cluster.claims()) == 1
        assert cluster.statuses()[0]["resourceClaimName"] == cluster.claims()[0]["metadata"]["name"]

    def test_also_when_the_watch_has_not_shown_it_yet(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.deliver()
        cluster.step(seen=False)
        for _ in range(5):
            cluster.step(seen=False)
            cluster.now += 1
        assert len(cluster.claims()) == 1
        cluster.settle()
        assert len(cluster.claims()) == 1

    def test_while_the_create_is_under_way(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.deliver()
        assert len(cluster.controller.act(cluster.now)) == 1
        cluster.pod(metadata={"labels": {"touched": "yes"}})
        cluster.deliver()
        assert cluster.controller.act(cluster.now) == []

    def test_after_a_restart_between_create_and_recording(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.deliver()
        cluster.step()
        cluster.restart()
        cluster.settle()
        assert len(cluster.claims()) == 1
        assert cluster.statuses()[0]["resourceClaimName"] == cluster.claims()[0]["metadata"]["name"]


class TestAClaimIsMadeAgain:
    def test_when_it_was_deleted(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.settle()
        first = cluster.claims()[0]["metadata"]["name"]
        del cluster.api.objects[RESOURCE_CLAIMS, f"ns/{first}"]
        cluster.settle()
        (claim,) = cluster.claims()
        assert claim["metadata"]["name"] != first
        assert cluster.statuses() == [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]

    def test_when_the_recorded_one_belongs_to_another_pod(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.given_claim("made", allocated=False, **owned_by("other"))
        cluster.pod(status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]})
        cluster.settle()
        assert len(cluster.claims()) == 2
        assert cluster.statuses()[0]["resourceClaimName"] != "made"

    def test_but_not_when_only_the_watch_is_behind(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.given_claim("made", allocated=False, **owned_by("train"))
        cluster.pod(status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]})
        for kind in (PODS, RESOURCE_CLAIM_TEMPLATES):
            for change in cluster.world.replace(kind, copy.deepcopy(cluster.api.all(kind))):
                cluster.controller.observe(change, cluster.now)
        cluster.step()
        assert cluster.step() == []
        assert len(cluster.claims()) == 1


class TestAClaimThatCannotBeMade:
    def test_for_lack_of_a_template_is_told_once_and_made_when_the_template_comes(self, cluster: Cluster) -> None:
        cluster.pod()
        cluster.settle()
        cluster.pod(metadata={"labels": {"touched": "yes"}})
        cluster.settle()
        (event,) = cluster.events()
        assert (event["type"], event["reason"]) == ("Warning", "FailedResourceClaimCreation")
        assert event["note"] == 'PodResourceClaim gpu: resourceclaimtemplate.resource.k8s.io "one-gpu" not found'
        assert event["regarding"]["name"] == "train"
        cluster.template()
        cluster.settle()
        assert len(cluster.claims()) == 1

    def test_does_not_keep_the_others_from_being_made(self, cluster: Cluster) -> None:
        cluster.template()
        entries = [{"name": name, "resourceClaimTemplateName": t} for name, t in (("a", "missing"), ("b", "one-gpu"))]
        cluster.pod("train", *entries)
        cluster.settle()
        assert [entry["name"] for entry in cluster.statuses()] == ["b"]

    @pytest.mark.parametrize(
        ("gate", "request_"),
        [
            ("DRAAdminAccess", {"name": "gpu", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}),
            ("DRAPrioritizedList", {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}),
        ],
    )
    def test_because_a_feature_is_off(self, gate: str, request_: Plain) -> None:
        cluster = Cluster(Gates.dray().updated({gate: False}))
        cluster.template(request=request_)
        cluster.pod()
        cluster.settle()
        assert cluster.claims() == []
        assert gate in cluster.events()[0]["note"]

    @pytest.mark.parametrize(
        ("refused", "seconds"),
        [
            (Refused(429, "TooManyRequests", "no"), [0.05, 0.1, 0.2, 0.4]),
            # It may have been made all the same.
            (Refused(500, "InternalError", "no"), [5.0] * 4),
        ],
    )
    def test_is_tried_again_ever_more_slowly_when_the_api_refuses(
        self, cluster: Cluster, refused: Refused, seconds: list[float]
    ) -> None:
        cluster.template()
        cluster.pod()
        cluster.deliver()
        waits = []
        for _ in range(4):
            cluster.refuse["create"] = refused
            assert len(cluster.step()) == 1
            assert cluster.step() == []
            wake = cluster.controller.wake()
            assert wake is not None
            waits.append(wake - cluster.now)
            cluster.now = wake
        assert waits == pytest.approx(seconds, rel=1e-3)
        cluster.settle()
        assert len(cluster.claims()) == 1
