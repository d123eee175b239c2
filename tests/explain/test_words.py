"""Reasons in words: every code has them, they agree with numbers, and a refusal fits into an event."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dray.api.codes import CODES
from dray.api.reason import Reason
from dray.api.words import MESSAGE_MAX, as_json, counted, data_keys, fixes, message, notice, words
from dray.explain.__main__ import page
from dray.explain.fix import MOST_TRIED, Fix
from dray.scheduling.config import DEFAULT_PLUGINS


def lacks(free: str) -> dict[str, str]:
    return {"resource": "cpu", "needed": "96", "free": free, "total": "96"}


LEFT_OVER = re.compile(r"[\[\]<>]|\|\||  | [,;:]|\{[a-z]")


def test_every_code_says_who_gives_it_and_what_can_change_it() -> None:
    plugins = {*(name for name, _ in DEFAULT_PLUGINS), "Scheduler", "NUMA"}
    for code, found in CODES.items():
        assert found.plugins, code
        assert set(found.plugins) <= plugins, code
        assert found.wakes, code
        assert found.meaning, code


def test_the_page_of_reasons_is_what_the_texts_say() -> None:
    written = Path(__file__).parents[2] / "docs" / "reasons.md"
    assert written.read_text() == page(), "run: python -m dray.explain > docs/reasons.md"


@pytest.mark.parametrize("code", CODES)
class TestEveryReason:
    def test_reads_well_without_any_datum(self, code: str) -> None:
        said = words(Reason(code))
        assert said.startswith("the ")
        assert not LEFT_OVER.search(said)
        assert not said.endswith((".", " "))

    def test_uses_each_datum_that_it_documents(self, code: str) -> None:
        everything = {key: f"value-of-{key}" for key in data_keys(code)}
        told = ""
        for left_out in (None, *everything):  # where one datum stands in for another
            reason = Reason(code, "", {key: value for key, value in everything.items() if key != left_out})
            told += " ".join([words(reason), message([(reason, 2)], 5), *fixes([(reason, 1)])])
        assert all(value in told for value in everything.values())

    def test_reads_well_for_many_nodes(self, code: str) -> None:
        told = message([(Reason(code), 3)], 5)
        assert told.startswith("0/5 nodes are available: 3 nodes ")
        assert told.endswith(".")
        assert not LEFT_OVER.search(told.removeprefix("0/5 nodes are available: "))


def summary(reasons_by_node: Mapping[str, Sequence[Reason]], total: int) -> str:
    return message(counted(reasons_by_node), total)


class TestOneReason:
    def test_names_its_object(self) -> None:
        assert words(Reason("ClaimMissing", "claim/ns/a")) == "claim ns/a does not exist"

    def test_a_device_reason_about_a_node_speaks_of_the_node(self) -> None:
        reason = Reason("DeviceTaken", "node/n1", {"class": "gpu"})
        assert words(reason) == "node n1 has no free device of class gpu"

    def test_a_claim_reason_about_a_pod_speaks_of_a_claim_of_the_pod(self) -> None:
        reason = Reason("ClaimNotCreated", "pod/ns/a", {"template": "one"})
        assert words(reason) == "pod ns/a has a claim that is not generated yet from template one"

    def test_as_json_has_the_keys_that_scripts_read(self) -> None:
        reason = Reason("ResourcesInsufficient", "node/n1", {"resource": "cpu", "needed": "4", "free": "1500m"})
        assert as_json(reason) == {
            "code": "ResourcesInsufficient",
            "message": "node n1 has not enough cpu (needs 4, 1.5 free)",
            "object": "node/n1",
            "data": {"resource": "cpu", "needed": "4", "free": "1500m"},
        }

    def test_lists_and_empty_data(self) -> None:
        gates = words(Reason("SchedulingGated", "pod/ns/a", {"gates": ["x", "y"]}))
        assert gates == "pod ns/a has scheduling gates: x, y"
        assert words(Reason("SchedulingGated", "pod/ns/a", {"gates": []})) == "pod ns/a has scheduling gates"


class TestASummary:
    def test_counts_nodes_and_tells_the_dominant_reason_first(self) -> None:
        few = {f"n{i}": [Reason("NotEnoughDevices", "", {"class": "gpu", "needed": 2, "free": i % 2})] for i in range(8)}
        tainted = [Reason("NodeTainted", "", {"key": "team", "value": "a", "effect": "NoSchedule"})]
        assert summary({**{f"t{i}": tainted for i in range(4)}, **few}, 12) == (
            "0/12 nodes are available: 8 nodes have not enough devices of class gpu (needs 2, at most 1 free), "
            "4 nodes have an untolerated taint {team=a:NoSchedule}."
        )

    def test_a_single_node_is_singular(self) -> None:
        assert summary({"n": [Reason("NodeUnschedulable")]}, 1) == "0/1 nodes are available: 1 node is cordoned."

    def test_a_node_counts_once_for_a_reason_that_it_gives_for_several_devices(self) -> None:
        reasons = [Reason("DeviceTaken", f"device/d/p/{i}", {"device": f"{i}"}) for i in range(8)]
        assert [count for _, count in counted({"n": reasons})] == [1]

    def test_a_reason_of_the_pod_itself_stands_alone(self) -> None:
        assert message([(Reason("ClaimMissing", "claim/ns/a"), 0)], 12) == "claim ns/a does not exist."

    def test_stays_within_an_event_and_says_what_is_left_out(self) -> None:
        counts = [(Reason("NodeTainted", "", {"key": f"key-{i}" * 10, "effect": "NoSchedule"}), 500 - i) for i in range(100)]
        told = message(counts, 5000)
        assert len(told.encode()) <= MESSAGE_MAX
        assert re.search(r", and \d+ more reasons\.$", told)
        assert "500 nodes" in told

    def test_a_single_reason_of_any_size_is_cut(self) -> None:
        told = message([(Reason("SelectorError", "claim/ns/a", {"error": "é" * 5000}), 0)], 1)
        assert len(told.encode()) <= MESSAGE_MAX
        assert told.endswith("…")

    def test_is_the_same_whatever_the_order_of_nodes(self) -> None:
        nodes = {f"n{i}": [Reason("NodeTainted", "", {"key": f"k{i % 3}"})] for i in range(9)}
        assert summary(nodes, 9) == summary(dict(reversed(nodes.items())), 9)

    def test_tells_the_best_number_whatever_its_unit(self) -> None:
        free = {"a": "63500m", "b": "95500m", "c": "8"}
        nodes = {name: [Reason("ResourcesInsufficient", f"node/{name}", lacks(amount))] for name, amount in free.items()}
        assert summary(nodes, 3) == "0/3 nodes are available: 3 nodes have not enough cpu (needs 96, at most 95.5 free of 96)."

    def test_tells_of_several_nodes_only_what_all_of_them_have(self) -> None:
        data = {"driver": "d", "detail": "two slices have device g0"}
        each = {name: [Reason("PoolInvalid", f"node/{name}", {**data, "pool": name})] for name in ("w0", "w1")}
        assert "2 nodes are served by an invalid pool of d: two slices" in summary(each, 2)
        (reason, _), *_ = counted(each)
        assert (reason.object, "pool" in reason.data) == ("", False)
        shared = {name: [Reason("PoolInvalid", f"node/{name}", {**data, "pool": "fabric"})] for name in ("w0", "w1")}
        assert "invalid pool fabric of d" in summary(shared, 2)

    def test_holders_of_several_nodes_are_all_of_theirs(self) -> None:
        few = {"class": "gpu", "needed": 2, "free": 1}
        each = {name: [Reason("NotEnoughDevices", f"node/{name}", {**few, "holders": [f"ns/{name}"]})] for name in ("a", "b")}
        assert counted(each)[0][0].data["holders"] == ["ns/a", "ns/b"]


class TestAmounts:
    def test_are_in_one_unit(self) -> None:
        said = words(Reason("ResourcesInsufficient", "node/n", {"resource": "memory", "needed": "10Gi", "free": "512Mi"}))
        assert said.endswith("(needs 10Gi, 0.5Gi free)")

    def test_of_bytes_are_not_told_in_bytes(self) -> None:
        data = {"capacity": "memory", "needed": "10737418240", "free": "5368709120"}
        assert words(Reason("CapacityExhausted", "device/d", data)).endswith("memory needs 10Gi, 5Gi left")

    def test_that_are_too_little_never_look_enough(self) -> None:
        data = {"resource": "memory", "needed": "10Gi", "free": str(10 * 2**30 - 1)}
        assert words(Reason("ResourcesInsufficient", "node/n", data)).endswith("(needs 10Gi, 9.99Gi free)")


class TestFixes:
    def test_say_how_much_is_missing(self) -> None:
        reasons = [
            (Reason("NotEnoughDevices", "", {"class": "gpu", "needed": 4, "free": 1}), 3),
            (Reason("NotEnoughDevices", "", {"class": "gpu", "needed": 4, "free": 3}), 1),
        ]
        assert fixes(reasons) == ["free more devices of class gpu on one node (1 missing), or ask for fewer"]

    def test_nodes_without_such_devices_add_nothing_where_others_have_too_few(self) -> None:
        wanted = {"class": "gpu", "request": "r"}
        none, few = (
            Reason("NoDevices", "", wanted),
            Reason("NotEnoughDevices", "", {**wanted, "needed": 9, "free": 5, "total": 8}),
        )
        assert fixes([(none, 4), (few, 2)]) == ["add a node with 9 devices of class gpu, or ask for at most 8"]
        assert fixes([(Reason("NoDevices", "", {"class": "nic", "request": "r"}), 4), (few, 2)])[0].startswith(
            "add a node with devices of class nic"
        )

    def test_the_one_that_helps_on_most_nodes_comes_first_and_none_twice(self) -> None:
        cordoned, tainted = Reason("NodeUnschedulable"), Reason("NodeTainted", "", {"key": "a"})
        told = fixes([(cordoned, 1), (tainted, 5), (Reason("NodeUnschedulable", "node/x"), 1)])
        assert [fix.split()[0] for fix in told] == ["add", "uncordon"]


class TestWhatKubeSchedulerWouldSay:
    def test_stands_behind_our_own_words_and_counts_nodes(self) -> None:
        few = Reason("NotEnoughDevices", "", {"class": "gpu", "needed": 2, "free": 1})
        counts = [(few, 6), (Reason("NoDevices", "", {"class": "gpu"}), 2), (Reason("NodeUnschedulable"), 4)]
        told = notice(counts, 12, "tried")
        assert told.startswith("0/12 nodes are available: 6 nodes have not enough devices of class gpu")
        assert told.endswith(
            " In kube-scheduler's words: 8 cannot allocate all claims, 4 node(s) were unschedulable."
            " preemption: 0/12 nodes are available: 6 No preemption victims found for incoming pod,"
            " 6 Preemption is not helpful for scheduling."
        )

    def test_counts_nothing_where_a_node_gives_several_reasons(self) -> None:
        counts = [(Reason("TooManyPods"), 2), (Reason("NodeUnschedulable"), 2)]
        assert "preemption: 0/2 nodes are available: No preemption" in notice(counts, 2, "tried")

    def test_a_pod_that_must_not_preempt_is_told_so(self) -> None:
        told = notice([(Reason("TooManyPods"), 2)], 2, "never")
        assert told.endswith("2 Too many pods. preemption: not eligible due to preemptionPolicy=Never.")

    def test_of_the_pod_itself_is_not_counted(self) -> None:
        assert notice([(Reason("BindingTimeout", "device/d/p/g"), 0)], 0) == (
            "device d/p/g did not become ready. In kube-scheduler's words: device binding timeout."
        )

    def test_of_a_selector_stands_in_our_own(self) -> None:
        assert "CEL runtime error" in notice([(Reason("SelectorError"), 0)], 0)
        assert "CEL compile error" in notice([(Reason("SelectorError", "", {"stage": "compile"}), 0)], 0)

    def test_is_left_out_where_it_has_no_words(self) -> None:
        counts = [(Reason("WriteFailed", "pod/ns/a"), 0)]
        assert notice(counts, 0) == message(counts, 0)

    @pytest.mark.parametrize("text", ["e" * 5000, "é" * 5000])
    def test_fits_into_an_event_whatever_the_rest_takes(self, text: str) -> None:
        told = notice([(Reason("SelectorError", "claim/ns/a", {"error": text}), 0)], 0)
        assert len(told.encode()) <= MESSAGE_MAX
        assert "CEL runtime error" in told
        many = [(Reason("ResourcesInsufficient", "", {"resource": f"{text[:200]}/{i}"}), 1) for i in range(50)]
        assert len(notice(many, 50, "tried").encode()) <= MESSAGE_MAX

    @pytest.mark.parametrize("code", [code for code, found in CODES.items() if "DynamicResources" in found.plugins])
    def test_is_known_for_all_that_nodes_lack_of_devices(self, code: str) -> None:
        if CODES[code].subject in ("node", "device") and code not in ("BindingFailed", "ClaimNamed"):
            assert CODES[code].upstream


def test_what_was_is_told_without_a_slip() -> None:
    told = words(Reason("GangMemberFailed", "pod/default/a", {"member": "default/b"}))
    assert told == "pod default/a was not bound because default/b of the same gang could not be"


def test_nodes_beyond_those_that_a_change_was_tried_on_are_not_denied() -> None:
    names = [f"n{number}" for number in range(MOST_TRIED)]
    assert Fix("do it", nodes=names).told == f"do it (then at least {MOST_TRIED} nodes would do)"
    assert Fix("do it", nodes=names[:3]).told == "do it (then 3 nodes would do)"
