"""Deployments, ReplicaSets and Jobs on a simulated cluster whose pods really start."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, RESOURCE_QUOTAS
from dray.controllers.indexes import INDEX
from tests.simulated import Place
from tests.workloads import job, replicated

REVISION = "deployment.kubernetes.io/revision"


@pytest.fixture
def place() -> Place:
    made = Place()
    made.start_controllers()
    made.start_nodes()
    return made


def image(place: Place, tag: int) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": f"registry.example/app:{tag}"}]}}}
    place.patch(DEPLOYMENTS, "web", {"spec": spec}, patch="strategic")


def images(place: Place) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"][-1] for pod in place.all(PODS, app="web"))


def condition(found: dict[str, Any] | None, type: str) -> tuple[str, str]:
    assert found is not None
    return next((c["status"], c["reason"]) for c in found["status"]["conditions"] if c["type"] == type)


def test_a_deployment_becomes_available(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 3))
    place.shell.run(20)
    found = place.get(DEPLOYMENTS, "web")
    assert found is not None
    assert (found["status"]["readyReplicas"], found["status"]["observedGeneration"]) == (3, 1)
    assert condition(found, "Available") == ("True", "MinimumReplicasAvailable")
    assert condition(found, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert found["metadata"]["annotations"][REVISION] == "1"


# What is no number although ``isdigit`` says so, what is one to nobody, and one that nobody reads.
NO_NUMBERS = ("²", "--5", "9" * 5000)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_an_annotation_that_is_no_number_stops_no_deployment(place: Place, text: str) -> None:
    place.create(DEPLOYMENTS, replicated("web", 3))
    place.pass_time(20)
    (replica_set,) = place.all(REPLICA_SETS)
    place.patch(REPLICA_SETS, replica_set["metadata"]["name"], {"metadata": {"annotations": {REVISION: text}}})
    for each in place.all(PODS):
        cost = {"controller.kubernetes.io/pod-deletion-cost": text}
        place.patch(PODS, each["metadata"]["name"], {"metadata": {"annotations": cost}})
    place.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
    place.pass_time(20)
    assert len(place.all(PODS)) == 1
    image(place, 2)
    place.pass_time(30)
    assert condition(place.get(DEPLOYMENTS, "web"), "Progressing") == ("True", "NewReplicaSetAvailable")


def test_the_pods_that_cost_least_go_first(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 3))
    place.pass_time(20)
    names = sorted(each["metadata"]["name"] for each in place.all(PODS))
    for name, cost in zip(names, ("-1", "-20", "3")):
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
        place.patch(PODS, name, {"metadata": {"annotations": annotations}})
    for left in (2, 1):
        place.patch(DEPLOYMENTS, "web", {"spec": {"replicas": left}})
        place.pass_time(20)
        assert sorted(each["metadata"]["name"] for each in place.all(PODS)) == [names[0], names[2]][2 - left :]


def test_who_is_refused_by_a_quota_asks_rarely_and_goes_on_when_there_is_room(place: Place) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
    place.create(RESOURCE_QUOTAS, quota)
    place.create(DEPLOYMENTS, replicated("web", 50))
    place.shell.run(10)
    asked: list[Any] = []
    place.shell.listeners.append(lambda written: asked.append(written) if written.write.kind is PODS else None)
    place.shell.run(300)
    assert len(place.all(PODS, app="web")) == 2
    assert 0 < len(asked) < 15
    (found,) = place.all(REPLICA_SETS)
    assert condition(found, "ReplicaFailure") == ("True", "FailedCreate")
    place.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "100"}}})
    place.shell.run(600)
    assert len(place.all(PODS, app="web")) == 50
    (found,) = place.all(REPLICA_SETS)
    assert "ReplicaFailure" not in [each["type"] for each in found["status"].get("conditions", ())]


def test_during_a_rollout_never_too_many_and_never_too_few(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 10))
    place.shell.run(20)
    seen: list[tuple[int, int]] = []

    def count(written: Any) -> None:
        pods = [pod for pod in place.all(PODS, app="web") if "deletionTimestamp" not in pod["metadata"]]
        seen.append((len(pods), sum(pod["status"]["phase"] == "Running" for pod in pods)))

    place.shell.listeners.append(count)
    image(place, 2)
    place.shell.run(120)
    assert images(place) == ["2"] * 10
    assert max(total for total, _ in seen) <= 13
    assert min(running for _, running in seen) >= 8


def test_recreate_starts_the_new_pods_when_the_old_ones_are_gone(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 3, strategy={"type": "Recreate"}))
    place.shell.run(20)
    mixed: list[int] = []
    place.shell.listeners.append(lambda written: mixed.append(len(set(images(place)))))
    image(place, 2)
    place.shell.run(120)
    assert images(place) == ["2"] * 3
    assert max(mixed) == 1


def test_going_back_to_an_old_template_reuses_its_replica_set_with_a_new_revision(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 1))
    place.shell.run(20)
    image(place, 2)
    place.shell.run(60)
    image(place, 1)
    place.shell.run(120)
    revisions = {rs["metadata"]["annotations"][REVISION]: rs["spec"]["replicas"] for rs in place.all(REPLICA_SETS)}
    assert revisions == {"2": 0, "3": 1}
    assert images(place) == ["1"]


def test_a_paused_deployment_is_scaled_and_not_rolled(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 2))
    place.shell.run(20)
    place.patch(DEPLOYMENTS, "web", {"spec": {"paused": True, "replicas": 4}})
    image(place, 2)
    place.shell.run(60)
    assert images(place) == ["1"] * 4
    place.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}})
    place.shell.run(120)
    assert images(place) == ["2"] * 4


def test_only_as_many_old_replica_sets_as_asked_for_are_kept(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 1, revisionHistoryLimit=2))
    for tag in range(2, 8):
        place.shell.run(place.shell.elapsed + 30)
        image(place, tag)
    place.shell.run(place.shell.elapsed + 60)
    assert len(place.all(REPLICA_SETS)) == 3


def test_a_rollout_that_does_not_progress_is_reported(place: Place) -> None:
    place.create(DEPLOYMENTS, replicated("web", 1, progressDeadlineSeconds=60))
    place.shell.run(20)
    spec = {"template": {"metadata": {"annotations": {"dray.dev/starts-after": "1h"}}}}
    place.patch(DEPLOYMENTS, "web", {"spec": spec})
    place.shell.run(200)
    assert condition(place.get(DEPLOYMENTS, "web"), "Progressing") == ("False", "ProgressDeadlineExceeded")


def test_a_pod_that_no_longer_matches_is_released_and_replaced(place: Place) -> None:
    place.create(REPLICA_SETS, replicated("web", 2))
    place.shell.run(20)
    name = place.all(PODS, app="web")[0]["metadata"]["name"]
    place.patch(PODS, name, {"metadata": {"labels": {"app": "free"}}})
    place.shell.run(40)
    assert "ownerReferences" not in place.all(PODS, app="free")[0]["metadata"]
    assert len(place.all(PODS, app="web")) == 2


def test_a_job_runs_as_many_pods_beside_each_other_as_it_may(place: Place) -> None:
    most = [0]
    place.shell.listeners.append(
        lambda written: most.__setitem__(0, max(most[0], sum(p["status"]["phase"] == "Running" for p in place.all(PODS))))
    )
    place.create(JOBS, job("sums", {"completions": 6, "parallelism": 2}, finishes_after="10s"))
    place.shell.run(120)
    found = place.get(JOBS, "sums")
    assert found is not None
    assert (found["status"]["succeeded"], most[0]) == (6, 2)
    assert condition(found, "Complete") == ("True", "CompletionsReached")


def test_a_failing_job_waits_longer_each_time_and_gives_up(place: Place) -> None:
    place.create(JOBS, job("sums", {"backoffLimit": 2}, fails_after="1s"))
    place.shell.run(300)
    found = place.get(JOBS, "sums")
    assert found is not None
    assert condition(found, "Failed") == ("True", "BackoffLimitExceeded")
    assert found["status"]["failed"] == 3
    created = sorted(pod["metadata"]["creationTimestamp"] for pod in place.all(PODS))
    assert len(created) == 3


def test_an_indexed_job_runs_each_index_once(place: Place) -> None:
    place.create(JOBS, job("sums", {"completions": 4, "parallelism": 4, "completionMode": "Indexed"}, finishes_after="5s"))
    place.shell.run(60)
    found = place.get(JOBS, "sums")
    assert found is not None
    assert found["status"]["completedIndexes"] == "0-3"
    assert len(place.all(PODS)) == 4


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0-99999999999999", "3-", "1-9"])
def test_indexes_that_a_job_does_not_have_are_not_counted(place: Place, text: str) -> None:
    spec = {"completions": 4, "parallelism": 1, "completionMode": "Indexed"}
    place.create(JOBS, job("sums", spec, finishes_after="30s"))
    place.pass_time(10)
    place.patch(JOBS, "sums", {"status": {"completedIndexes": text}}, subresource="status")
    for each in place.all(PODS):
        place.patch(PODS, each["metadata"]["name"], {"metadata": {"annotations": {INDEX: text}}})
    place.pass_time(300)
    assert condition(place.get(JOBS, "sums"), "Complete")[0] == "True"


def test_a_job_over_its_deadline_fails_and_its_pods_go(place: Place) -> None:
    place.create(JOBS, job("sums", {"activeDeadlineSeconds": 20}, finishes_after="1h"))
    place.shell.run(60)
    assert condition(place.get(JOBS, "sums"), "Failed") == ("True", "DeadlineExceeded")
    assert place.all(PODS) == []


def test_a_suspended_job_has_no_pods_until_it_is_resumed(place: Place) -> None:
    place.create(JOBS, job("sums", {"suspend": True}, finishes_after="5s"))
    place.shell.run(20)
    assert place.all(PODS) == []
    place.patch(JOBS, "sums", {"spec": {"suspend": False}})
    place.shell.run(60)
    assert condition(place.get(JOBS, "sums"), "Complete")[0] == "True"


def test_a_finished_job_goes_after_its_time_with_its_pods(place: Place) -> None:
    place.create(JOBS, job("sums", {"ttlSecondsAfterFinished": 30}, finishes_after="5s"))
    place.shell.run(20)
    assert place.get(JOBS, "sums") is not None
    place.shell.run(90)
    assert place.get(JOBS, "sums") is None
    assert place.all(PODS) == []


def test_a_job_of_another_manager_is_left_to_it(place: Place) -> None:
    place.create(JOBS, job("other", {"managedBy": "example.com/queue"}))
    place.pass_time(30)
    assert place.all(PODS) == []
    assert not place.get(JOBS, "other")["status"]  # type: ignore[index]


def test_a_job_adopts_its_orphans_and_lets_go_of_pods_that_no_longer_match(place: Place) -> None:
    place.create(JOBS, job("work"))
    place.pass_time(10)
    [pod] = place.all(PODS)
    place.patch(PODS, pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    place.pass_time(10)
    [again] = place.all(PODS)
    assert again["metadata"]["ownerReferences"][0]["kind"] == "Job"
    gone = dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"))
    place.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": gone}})
    place.pass_time(30)
    released = place.get(PODS, pod["metadata"]["name"])
    assert released is not None
    assert "ownerReferences" not in released["metadata"]
    assert len(place.all(PODS)) == 2


def test_a_success_policy_ends_an_indexed_job_early(place: Place) -> None:
    rules = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    spec = {"completions": 5, "parallelism": 1, "completionMode": "Indexed", "successPolicy": rules}
    place.create(JOBS, job("work", spec, finishes_after="1s"))
    place.pass_time(60)
    assert condition(place.get(JOBS, "work"), "Complete") == ("True", "SuccessPolicy")
    assert place.get(JOBS, "work")["status"]["succeeded"] == 1  # type: ignore[index]
