"""The status of a DeviceTaintRule says what its taint does, and what it would do; at a bounded rate."""

from __future__ import annotations

import pytest

from dray.api.kinds import DEVICE_TAINT_RULES
from dray.api.times import format_time
from dray.cluster.port import Invalid
from tests.controllers.eviction_cluster import Tainted, tolerates

NOT_AGAIN = "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."


@pytest.fixture
def cluster() -> Tainted:
    made = Tainted()
    made.start_eviction()
    made.slice(devices=3)
    made.run()
    return made


def writes(cluster: Tainted) -> int:
    return len(cluster.writes("patch", DEVICE_TAINT_RULES, "status"))


class TestWithTheEffectNone:
    def test_it_says_what_would_be_evicted_and_nothing_is(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.rule(effect="None", selector={})
        cluster.run(60)
        assert cluster.told() == (
            "False",
            "NoEffect",
            (
                "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace "
                f"if the effect was NoExecute. {NOT_AGAIN}"
            ),
        )
        assert not cluster.evicted("train")

    def test_namespaces_are_counted(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.using("serve", "gpu-1", namespace="other")
        cluster.rule(effect="None", selector={"driver": "gpu.example.com"})
        cluster.run(2)
        assert "2 pods would be evicted in 2 different namespaces if" in cluster.told()[2]

    def test_tolerations_are_honoured_and_a_delay_is_an_eviction(self, cluster: Tainted) -> None:
        cluster.using("stays", "gpu-0", tolerations=[tolerates()])
        cluster.using("leaves-later", "gpu-1", tolerations=[tolerates(600)])
        cluster.rule(effect="None", selector={})
        cluster.run(2)
        assert "2 allocated devices selected. 1 pod would be evicted in 1 namespace if" in cluster.told()[2]

    def test_devices_that_are_only_allocated_count(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-9")
        cluster.rule(effect="None", selector={"device": "gpu-9"})
        cluster.run(2)
        assert cluster.told()[2].startswith("0 published devices selected. 1 allocated device selected. 1 pod would")

    def test_other_rules_and_their_pods_do_not_count(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0", tolerations=[tolerates(600)])
        cluster.rule("other", selector={"device": "gpu-0"})
        cluster.rule(effect="None", selector={"device": "gpu-1"})
        cluster.run(2)
        assert "0 pods would be evicted in 0 different namespaces" in cluster.told()[2]

    def test_it_is_said_once_for_each_change_of_the_spec(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.rule(effect="None", selector={})
        cluster.run(30)
        cluster.using("more", "gpu-1")
        cluster.run(60)
        assert writes(cluster) == 1
        cluster.patch(DEVICE_TAINT_RULES, "rule", {"spec": {"deviceSelector": {"device": "gpu-1"}}})
        cluster.run(2)
        assert "1 published device selected. 1 allocated device selected. 1 pod would" in cluster.told()[2]
        condition = cluster.condition()
        assert condition is not None
        assert condition["observedGeneration"] == 2
        assert writes(cluster) == 2

    def test_a_restart_does_not_say_it_again(self, cluster: Tainted) -> None:
        cluster.rule(effect="None")
        cluster.run(10)
        cluster.restart()
        cluster.using("train", "gpu-0")
        cluster.run(30)
        assert writes(cluster) == 1


class TestWithTheEffectNoExecute:
    def test_changed_from_none_it_is_in_progress_at_once_with_a_new_time(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0", tolerations=[tolerates(30)])
        cluster.rule(effect="None")
        cluster.run(100)
        cluster.change(effect="NoExecute")
        cluster.run(1)
        rule = cluster.get(DEVICE_TAINT_RULES, "rule")
        assert rule is not None
        assert rule["metadata"]["generation"] == 2
        assert rule["spec"]["taint"]["timeAdded"] == format_time(cluster.now - 1)
        assert cluster.told() == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")

    def test_pods_in_several_namespaces_are_counted(self, cluster: Tainted) -> None:
        for name, device, namespace in (("a", "gpu-0", "default"), ("b", "gpu-1", "default"), ("c", "gpu-2", "other")):
            cluster.using(name, device, namespace=namespace, tolerations=[tolerates(600)])
        cluster.rule(selector={})
        cluster.run(1)
        assert cluster.told()[2] == "3 pods need to be evicted in 2 different namespaces."

    def test_it_ends_when_the_last_pod_was_told_to_leave(self, cluster: Tainted) -> None:
        cluster.using("a", "gpu-0")
        cluster.using("b", "gpu-1")
        cluster.rule(selector={})
        cluster.run(9)
        assert cluster.told()[0] == "True"
        cluster.run(3)
        assert cluster.told() == ("False", "Completed", "2 pods evicted since starting the controller.")

    def test_without_pods_it_is_said_only_when_schedulers_must_know_the_rule(self, cluster: Tainted) -> None:
        """KEP-5055: 5 to 10 seconds. Until then a pod may still be placed."""
        cluster.rule()
        cluster.run(5)
        assert cluster.condition() is None
        cluster.run(5)
        assert cluster.told() == ("False", "NotStarted", "")

    def test_a_pod_that_is_placed_meanwhile_makes_it_true(self, cluster: Tainted) -> None:
        cluster.rule()
        cluster.run(3)
        cluster.using("late", "gpu-0", tolerations=[tolerates(20)])
        cluster.run(10)
        assert cluster.told()[0] == "True"

    def test_the_counts_move_while_it_goes_on_and_not_more_often_than_every_ten_seconds(self) -> None:
        cluster = Tainted(rate=2.0, burst=1)
        cluster.start_eviction()
        for number in range(60):
            cluster.using(f"p{number}", "gpu-0")
        cluster.rule()
        seen: dict[str, None] = {}
        for _ in range(60):
            cluster.run(1)
            seen[cluster.told()[2]] = None
        counts = [int(text.split(" ")[0]) for text in seen if "need" in text]
        assert counts == sorted(counts, reverse=True)
        assert 3 <= len(counts) <= 5
        assert cluster.told() == ("False", "Completed", "60 pods evicted since starting the controller.")
        assert writes(cluster) <= 6

    def test_the_time_changes_only_with_the_status(self, cluster: Tainted) -> None:
        cluster.using("a", "gpu-0", tolerations=[tolerates(12)])
        cluster.using("b", "gpu-0", tolerations=[tolerates(60)])
        cluster.rule()
        cluster.run(1)
        first = cluster.condition()
        cluster.run(30)
        second = cluster.condition()
        assert first is not None
        assert second is not None
        assert first["message"] != second["message"]
        assert first["lastTransitionTime"] == second["lastTransitionTime"]

    def test_after_a_restart_the_count_starts_again(self, cluster: Tainted) -> None:
        cluster.using("a", "gpu-0")
        cluster.rule()
        cluster.run(30)
        assert cluster.told()[1] == "Completed"
        cluster.restart()
        cluster.run(30)
        assert cluster.told() == ("False", "NotStarted", "")

    def test_a_new_rule_of_the_same_name_counts_for_itself(self, cluster: Tainted) -> None:
        cluster.using("a", "gpu-0")
        cluster.rule()
        cluster.run(30)
        cluster.delete(DEVICE_TAINT_RULES, "rule")
        cluster.rule()
        cluster.run(30)
        assert cluster.told() == ("False", "NotStarted", "")
        assert all(one.error is None for one in cluster.writes("patch", DEVICE_TAINT_RULES, "status"))


class TestWithAnotherEffect:
    def test_it_says_that_nothing_is_evicted(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.rule(effect="NoSchedule")
        cluster.run(1)
        assert cluster.told() == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
        assert not cluster.evicted("train")

    def test_what_was_evicted_before_is_still_told(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.rule()
        cluster.run(2)
        cluster.change(effect="NoSchedule")
        cluster.run(2)
        text = "Eviction only happens for the NoExecute effect. 1 pod evicted since starting the controller."
        assert cluster.told() == ("False", "OtherEffect", text)


class TestTheConditionsOfARule:
    def other(self, count: int) -> list[dict[str, str]]:
        time = "2026-01-01T00:00:00Z"
        return [
            {"type": f"T{n}", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time} for n in range(count)
        ]

    def test_those_of_others_are_kept(self, cluster: Tainted) -> None:
        cluster.rule(effect="NoSchedule")
        cluster.status(DEVICE_TAINT_RULES, "rule", {"conditions": self.other(3)}, "")
        cluster.run(20)
        cluster.change(effect="None")
        cluster.run(20)
        rule = cluster.get(DEVICE_TAINT_RULES, "rule")
        assert rule is not None
        assert {c["type"] for c in rule["status"]["conditions"]} == {"T0", "T1", "T2", "EvictionInProgress"}

    def test_there_are_eight_at_most_and_a_full_list_is_left_alone(self, cluster: Tainted) -> None:
        cluster.shell.crash("controllers", 60)
        cluster.rule()
        with pytest.raises(Invalid, match="must have at most 8 items"):
            cluster.status(DEVICE_TAINT_RULES, "rule", {"conditions": self.other(9)}, "")
        cluster.status(DEVICE_TAINT_RULES, "rule", {"conditions": self.other(8)}, "")
        cluster.using("train", "gpu-0")
        cluster.run(120)
        assert cluster.evicted("train")
        assert writes(cluster) == 0

    def test_a_change_of_the_status_alone_causes_nothing(self, cluster: Tainted) -> None:
        cluster.rule()
        cluster.run(60)
        before = len(cluster.written)
        cluster.status(DEVICE_TAINT_RULES, "rule", {"conditions": [*self.other(1), cluster.condition()]}, "")
        cluster.run(60)
        assert len(cluster.written) == before

    @pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule", "None"])
    def test_one_that_somebody_took_away_comes_back_and_not_more_often_than_others_are_written(
        self, cluster: Tainted, effect: str
    ) -> None:
        cluster.rule(effect=effect)
        cluster.run(60)
        told, before = cluster.told(), writes(cluster)
        for _ in range(10):
            cluster.status(DEVICE_TAINT_RULES, "rule", {"conditions": self.other(1)}, "")
            cluster.run(1)
        cluster.run(20)
        assert cluster.told() == told
        assert 1 <= writes(cluster) - before <= 2


class TestARuleThatExpires:
    def test_is_removed_at_its_time_and_the_pods_that_were_to_leave_stay(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0", tolerations=[tolerates(120)])
        cluster.rule(annotations={"dray.dev/expires-at": format_time(cluster.now + 60)})
        cluster.run(58)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is not None
        cluster.run(100)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is None
        assert not cluster.evicted("train")

    def test_while_the_controller_was_down_evicts_nobody_when_that_is_back(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        cluster.run()
        cluster.shell.crash("controllers", 60)
        cluster.rule(annotations={"dray.dev/expires-at": format_time(cluster.now + 30)})
        cluster.run(120)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is None
        assert not cluster.evicted("train")
        assert cluster.events() == []

    def test_that_nobody_may_remove_evicts_again_once_it_is_prolonged(self, cluster: Tainted) -> None:
        cluster.using("train", "gpu-0")
        past = {"dray.dev/expires-at": format_time(cluster.now - 30)}
        cluster.rule(annotations=past, finalizers=["example.com/hold"])
        cluster.run(20)
        assert not cluster.evicted("train")
        later = {"dray.dev/expires-at": format_time(cluster.now + 600)}
        cluster.patch(DEVICE_TAINT_RULES, "rule", {"metadata": {"annotations": later}})
        cluster.run(20)
        assert cluster.evicted("train")

    def test_can_be_prolonged(self, cluster: Tainted) -> None:
        cluster.rule(annotations={"dray.dev/expires-at": format_time(cluster.now + 60)})
        cluster.run(30)
        later = {"metadata": {"annotations": {"dray.dev/expires-at": format_time(cluster.now + 300)}}}
        cluster.patch(DEVICE_TAINT_RULES, "rule", later)
        cluster.run(200)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is not None
        cluster.run(200)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is None

    def test_with_a_time_that_cannot_be_read_stays(self, cluster: Tainted) -> None:
        cluster.rule(annotations={"dray.dev/expires-at": "soon"})
        cluster.run(3600)
        assert cluster.get(DEVICE_TAINT_RULES, "rule") is not None
