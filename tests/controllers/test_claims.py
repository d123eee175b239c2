"""The claims controller, seen from the API: objects in, writes out, what the API then shows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Kind
from dray.api.resource import FINALIZER, POD_CLAIM_NAME
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Refused, Unreachable, Write
from dray.cluster.world import World
from dray.controllers.claims import ClaimsController, claim_name_base
from dray.scheduling.metrics import Recorder

Plain = dict[str, Any]
MERGE_KEYS = {"reservedFor": "uid", "resourceClaimStatuses": "name"}


class Api:
    """An API server of a few lines: preconditions, patches, finalizers, generated names. ``World`` lags until ``deliver``."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str], Plain] = {}
        self.version = 0
        self.names = 0

    def put(self, kind: Kind, body: Plain) -> Plain:
        metadata = body.setdefault("metadata", {})
        metadata.setdefault("namespace", "ns")
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[kind, f"{metadata['namespace']}/{metadata['name']}"] = body
        return body

    def write(self, write: Write) -> Plain:
        if write.verb == "create":
            body = copy.deepcopy(write.body)
            if "name" not in body["metadata"]:
                self.names += 1
                body["metadata"]["name"] = f"{body['metadata']['generateName']}{self.names:05d}"
            return self.put(write.kind, body)
        found = self.objects.get((write.kind, write.key))
        if found is None:
            raise NotFound(404, "NotFound", f"{write.key} not found")
        metadata = found["metadata"]
        if write.uid and write.uid != metadata["uid"]:
            raise Conflict(409, "Conflict", "uid")
        if write.resource_version and write.resource_version != metadata["resourceVersion"]:
            raise Conflict(409, "Conflict", "resourceVersion")
        if write.verb == "delete":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif write.body == {}:
            return found
        else:
            merged(found, write.body, strategic=write.patch == "strategic")
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[write.kind, write.key]
            return found
        return self.put(write.kind, found)

    def all(self, kind: Kind) -> list[Plain]:
        return [body for (found, _), body in sorted(self.objects.items(), key=lambda item: item[0][1]) if found == kind]


def merged(into: Plain, patch: Plain, *, strategic: bool) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merged(into.setdefault(key, {}), value, strategic=strategic)
        elif strategic and key in MERGE_KEYS:
            by = {item[MERGE_KEYS[key]]: item for item in into.get(key, [])}
            for item in value:
                if item.get("$patch") == "delete":
                    by.pop(item[MERGE_KEYS[key]], None)
                else:
                    by[item[MERGE_KEYS[key]]] = item
            into[key] = list(by.values())
        else:
            into[key] = value


class Cluster:
    """The controller on the API, with the World as far behind as a test wants it."""

    def __init__(self, gates: Gates | None = None) -> None:
        self.api, self.gates = Api(), gates
        self.now = 1_000_000.0
        self.written: list[Write] = []
        self.refuse: dict[str, ClusterError] = {}  # verb or subresource -> what the next such write ends in
        self.restart()

    def restart(self) -> None:
        self.world = World(ClaimsController.kinds)
        self.controller = ClaimsController(self.world, self.gates)
        self.delivered: set[tuple[Kind, str]] = set()

    def deliver(self) -> None:
        """The watch catches up."""
        for kind in ClaimsController.kinds:
            listed = [copy.deepcopy(body) for body in self.api.all(kind)]
            for change in self.world.replace(kind, listed):
                self.controller.observe(change, self.now)

    def step(self, *, seen: bool = True) -> list[Write]:
        """One round: act, write, outcomes. ``seen``: answers and watch events reach the World."""
        writes = self.controller.act(self.now)
        for write in writes:
            self.written.append(write)
            outcome = self._attempt(write)
            if seen and outcome.object is not None and write.kind in self.world.kinds and write.verb != "delete":
                for change in self.world.put(write.kind, copy.deepcopy(outcome.object)):
                    self.controller.observe(change, self.now)
            self.controller.observe(outcome, self.now)
        return writes

    def _attempt(self, write: Write) -> Outcome:
        for key in (write.verb, write.subresource):
            if key in self.refuse:
                return Outcome(write, error=self.refuse.pop(key))
        try:
            return Outcome(write, object=self.api.write(write))
        except Refused as error:
            return Outcome(write, error=error)

    def settle(self, limit: int = 50) -> None:
        for _ in range(limit):
            self.deliver()
            if not self.step():
                wake = self.controller.wake()
                if wake is None:
                    return
                self.now = max(self.now, wake)
        raise AssertionError("the controller does not settle")

    # what tests speak of

    def claims(self) -> list[Plain]:
        return self.api.all(RESOURCE_CLAIMS)

    def claim(self, name: str) -> Plain | None:
        return self.api.objects.get((RESOURCE_CLAIMS, f"ns/{name}"))

    def statuses(self, pod: str = "train") -> list[Plain]:
        return self.api.objects[PODS, f"ns/{pod}"].get("status", {}).get("resourceClaimStatuses", [])

    def events(self) -> list[Plain]:
        return self.api.all(EVENTS)

    def pod(self, name: str = "train", *entries: Plain, **fields: Any) -> Plain:
        entries = entries or ({"name": "gpu", "resourceClaimTemplateName": "one-gpu"},)
        spec = {"resourceClaims": list(entries), **fields.pop("spec", {})}
        return self.api.put(PODS, {"metadata": {"name": name, **fields.pop("metadata", {})}, "spec": spec, **fields})

    def template(self, name: str = "one-gpu", **metadata: Any) -> Plain:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "somethingNew": {"a": 1}}}
        spec = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
        return self.api.put(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": spec})

    def given_claim(self, name: str = "shared", *, pods: tuple[str, ...] = (), allocated: bool = True, **metadata: Any) -> Plain:
        consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        status: Plain = {"reservedFor": consumers}
        if allocated:
            status["allocation"] = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "g0"}]}}
        finalizers = [FINALIZER] if allocated else []
        return self.api.put(
            RESOURCE_CLAIMS, {"metadata": {"name": name, "finalizers": finalizers, **metadata}, "spec": {}, "status": status}
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def owned_by(pod: str, entry: str = "gpu") -> Plain:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
    return {"ownerReferences": [owner], "annotations": {POD_CLAIM_NAME: entry}}


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
        assert "finalizers" not in claim["metadata"]
        assert cluster.statuses() == [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]

    def test_and_fields_that_dray_does_not_know_are_kept(self, cluster: Cluster) -> None:
        template = cluster.template()
        cluster.pod()
        cluster.settle()
        assert cluster.claims()[0]["spec"] == template["spec"]["spec"]
        assert cluster.claims()[0]["spec"]["devices"]["requests"][0]["exactly"]["somethingNew"] == {"a": 1}

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
        cluster.template()["spec"]["spec"] = {"devices": {"requests": [request_]}}
        cluster.pod()
        cluster.settle()
        assert cluster.claims() == []
        assert gate in cluster.events()[0]["note"]

    def test_is_tried_again_ever_more_slowly_when_the_api_refuses(self, cluster: Cluster) -> None:
        cluster.template()
        cluster.pod()
        cluster.deliver()
        waits = []
        for _ in range(4):
            cluster.refuse["create"] = Refused(500, "InternalError", "no")
            assert len(cluster.step()) == 1
            assert cluster.step() == []
            wake = cluster.controller.wake()
            assert wake is not None
            waits.append(wake - cluster.now)
            cluster.now = wake
        assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4], rel=1e-3)
        cluster.settle()
        assert len(cluster.claims()) == 1


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
        assert claim["status"] == {"reservedFor": []}
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
        assert cluster.claim("shared")["status"]["reservedFor"] == []  # type: ignore[index]

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
        cluster.given_claim(allocated=False)["metadata"]["finalizers"] = [FINALIZER]
        cluster.settle()
        assert cluster.written == []

    def test_other_finalizers_stay(self, cluster: Cluster) -> None:
        claim = cluster.given_claim(deletionTimestamp="2026-01-01T00:00:00Z")
        claim["metadata"]["finalizers"] = ["mine/x", FINALIZER]
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
        assert reserved[1] == {"resource": "pods", "name": "b", "uid": "uid-b"}

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
        cluster.template()["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
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
