"""``dray numa check`` and ``dray numa merge``: one answer a line, in order, whatever the lines are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.cli import root
from dray.numa.demand import demand, is_guaranteed
from tests.numa.building import GPU, pod

Json = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "docs" / "numa"


def ask(command: str, *lines: Json | str) -> tuple[list[Json], int]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    done = CliRunner().invoke(root, ["numa", command, "-"], input=text)
    return [json.loads(line) for line in done.stdout.splitlines()], done.exit_code


def node(*zones: Json, policy: str = "restricted", scope: str = "pod") -> Json:
    listed = []
    for number, amounts in enumerate(zones):
        resources = [{"name": k, "capacity": v, "allocatable": v, "available": v} for k, v in amounts.items()]
        listed.append({"name": f"node-{number}", "type": "Node", "resources": resources})
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    return {"metadata": {"name": "n1"}, "attributes": attributes, "zones": listed}


def guaranteed(**amounts: str) -> Json:
    named = {GPU if name == "gpu" else name: value for name, value in amounts.items()}
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": named}}]}, "status": {"qosClass": "Guaranteed"}}


ZONES = ({"cpu": "16", GPU: "4"}, {"cpu": "16", GPU: "4"})


ROLES = {"initContainers": "4", "containers": "2"}


class TestCheck:
    def test_admits_into_zones(self) -> None:
        (answer,), code = ask("check", {"id": "a", "topology": node(*ZONES), "pod": guaranteed(gpu="6", cpu="24")})
        assert code == 0
        assert answer == {
            "id": "a",
            "handled": True,
            "admit": True,
            "placement": {"0": {"cpu": "16", GPU: "4"}, "1": {"cpu": "8", GPU: "2"}},
            "span": 2,
            "masks": [["0", "1"]],
        }

    def test_cpus_that_only_init_containers_used_are_told_apart(self) -> None:
        """The pod keeps them; where its containers run they are not."""
        asked = {name: [{"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}] for name, cpu in ROLES.items()}
        zones = node({"cpu": "4"}, {"cpu": "4"}, policy="single-numa-node", scope="container")
        (answer,), _ = ask("check", {"id": "i", "topology": zones, "pod": {"spec": asked}})
        assert (answer["placement"], answer["held"], answer["peak"]) == (
            {"0": {"cpu": "2"}},
            {"0": {"cpu": "4"}},
            {"0": {"cpu": "4"}},
        )

    def test_refuses_with_a_reason(self) -> None:
        (answer,), _ = ask("check", {"id": "b", "topology": node(*ZONES), "pod": guaranteed(gpu="6", cpu="10")})
        assert (answer["handled"], answer["admit"], answer["placement"], answer["span"]) == (True, False, None, 0)
        assert answer["reason"]["code"] == "ZoneWidthsDiffer"
        assert answer["reason"]["message"] == (
            "node n1 requires all resources to need equally many zones, and they need cpu=1, nvidia.com/gpu=2"
        )
        assert answer["reason"]["data"]["widths"] == {"cpu": 1, GPU: 2}

    def test_placed_pods_are_subtracted_from_what_can_be_allocated(self) -> None:
        line = {"topology": node(*ZONES, policy="single-numa-node"), "pod": guaranteed(cpu="14")}
        placed = [{"0": {"cpu": "4"}}, {"node-1": {"cpu": "1500m"}}]
        (free, used, full), _ = ask("check", line, {**line, "placed": placed}, {**line, "placed": [*placed, {"1": {"cpu": "1"}}]})
        assert list(free["placement"]) == ["0"]
        assert list(used["placement"]) == ["1"]
        assert full["reason"]["message"] == (
            "node n1 has not enough cpu free in the same zones (needs 14 within 1 of them, 13.5 free); "
            "zone 1 comes nearest and lacks cpu=500m"
        )

    def test_memory_in_two_zones_binds_them_where_it_must_have_come_from_both_together(self) -> None:
        zones = ({"memory": "100"}, {"memory": "100"})
        wide, narrow = guaranteed(memory="60"), guaranteed(memory="30")
        together = [{"0": {"memory": "100"}, "1": {"memory": "20"}}]
        apart = [{"0": {"memory": "50"}, "1": {"memory": "20"}}]

        def admitted(pod: Json, placed: list[Json], scope: str) -> bool:
            line = {"topology": node(*zones, scope=scope), "pod": pod, "placed": placed}
            return bool(ask("check", line)[0][0]["admit"])

        assert not admitted(narrow, together, "pod")
        assert not admitted(narrow, together, "container")
        assert admitted(narrow, apart, "container")
        assert not admitted(narrow, apart, "pod")
        assert admitted(wide, apart, "container")

    def test_huge_pages_in_a_zone_without_memory_came_from_several_zones_together(self) -> None:
        """Every container that is aligned has memory, so that none was served from zone 1 alone."""
        zones = ({"memory": "8", "hugepages-1Gi": "2"},) * 2
        question = {"topology": node(*zones, scope="container"), "pod": guaranteed(memory="1")}
        placed = {"0": {"memory": "1", "hugepages-1Gi": "2"}, "1": {"hugepages-1Gi": "1"}}
        (answer,), _ = ask("check", {**question, "placed": [placed]})
        assert answer["reason"]["code"] == "ZoneMemoryGroups"

    def test_what_is_not_aligned_is_admitted_and_not_handled(self) -> None:
        line = {"topology": node(*ZONES), "pod": guaranteed(cpu="500m")}
        permissive = {"topology": node(*ZONES, policy="none"), "pod": guaranteed(cpu="40")}
        for answer in ask("check", line, permissive, {"topology": {"zones": []}, "pod": guaranteed(cpu="4")})[0]:
            assert (answer["handled"], answer["admit"], answer["placement"], answer["span"]) == (False, True, None, 0)

    def test_where_nothing_is_refused_memory_comes_from_the_narrowest_zones_that_contain_those_of_the_pod(self) -> None:
        zones = ({GPU: "1", "memory": "2"}, {"memory": "1"}, {"memory": "8"})
        question = {"topology": node(*zones, policy="best-effort"), "pod": guaranteed(gpu="1", memory="9")}
        (answer,), _ = ask("check", question)
        assert answer["predicted"]["placement"] == {"0": {GPU: "1", "memory": "2"}, "2": {"memory": "7"}}

    def test_where_nothing_is_refused_containers_are_served_one_after_another(self) -> None:
        """Huge pages of a sidecar alone are not asked for by the pod as a whole, and it gets them all the same."""
        zones = ({"memory": "8", "hugepages-1Gi": "0"}, {"memory": "8", "hugepages-1Gi": "4"})
        parts = {
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"limits": {"hugepages-1Gi": "4"}}}],
            "containers": [{"name": "c", "resources": {"limits": {"memory": "4"}}}],
        }
        asked = {"spec": parts, "status": {"qosClass": "Guaranteed"}}
        (answer,), _ = ask("check", {"topology": node(*zones, policy="best-effort"), "pod": asked})
        assert answer["predicted"]["placement"] == {"0": {"memory": "4"}, "1": {"hugepages-1Gi": "4"}}

    def test_of_a_pod_whose_containers_have_the_memory_of_its_init_container(self) -> None:
        asked = guaranteed(cpu="1", memory="6")
        asked["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"cpu": "1", "memory": "10"}}}]
        zones = {"cpu": "8", "memory": "7"}
        (answer,), _ = ask("check", {"topology": node(zones, zones, policy="best-effort", scope="container"), "pod": asked})
        assert answer["predicted"]["masks"] == [["0", "1"], ["0", "1"]]
        assert answer["predicted"]["aligned"]

    def test_memory_of_init_containers_comes_back_to_the_zones_that_it_was_drawn_from(self) -> None:
        """Those are 1 and 3 together; the sidecar's memory in zone 2 stays."""
        zones = [{"cpu": "5", "memory": "18"}] * 4
        asked = guaranteed(cpu="500m", memory="2")
        sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "5", "memory": "2"}}}
        wide = {"name": "i", "resources": {"limits": {"cpu": "500m", "memory": "20"}}}
        asked["spec"]["initContainers"] = [wide, sidecar]
        question = {"topology": node(*zones, scope="container"), "pod": asked, "placed": [{"0": {"memory": "1", "cpu": "5"}}]}
        near = [[10, 20, 20, 20], [20, 10, 20, 11], [20, 20, 10, 20], [20, 11, 20, 10]]
        for zone, row in zip(question["topology"]["zones"], near):
            zone["costs"] = [{"name": f"node-{number}", "value": value} for number, value in enumerate(row)]
        question["kubelet"] = {"preferClosestNUMA": True}
        (answer,), _ = ask("check", question)
        assert answer["masks"] == [["1", "3"], ["2"], ["0"]]
        assert answer["placement"] == {"0": {"memory": "2"}, "2": {"cpu": "5", "memory": "2"}}

    def test_a_zone_that_serves_a_container_alone_is_not_bound_any_more_for_those_after_it(self) -> None:
        """The first container's huge pages bind both zones; the second is served from one of them, and the bond is forgotten."""
        zones = {"cpu": "8", "memory": "7", "hugepages-1Gi": "3"}
        asked = guaranteed(cpu="1", memory="2")
        needs: list[Json] = [{"cpu": "1", "memory": "1", "hugepages-1Gi": "4"}, {"cpu": "1", "memory": "6"}]
        asked["spec"]["initContainers"] = [{"name": f"i{n}", "resources": {"limits": each}} for n, each in enumerate(needs)]
        (answer,), _ = ask("check", {"topology": node(zones, zones), "pod": asked})
        assert (answer["admit"], answer["masks"]) == (True, [["0"]])

    def test_settings_and_ignored_resources(self) -> None:
        line = {"topology": node(*ZONES), "pod": guaranteed(gpu="6", cpu="10")}
        off, ignored = ask("check", {**line, "kubelet": {"cpuManagerPolicy": "none"}}, {**line, "ignore": ["cpu"]})[0]
        assert off["admit"]
        assert ignored["admit"]

    def test_a_zone_that_is_too_small_says_what_there_is(self) -> None:
        (answer,), _ = ask("check", {"topology": node(*ZONES, policy="single-numa-node"), "pod": guaranteed(cpu="20")})
        assert answer["reason"]["message"] == (
            "node n1 has zones too small for 20 cpu (at most 16 in as many as policy single-numa-node allows)"
        )

    def test_what_no_zones_have_together_even_when_empty_is_told_apart_from_what_is_in_use(self) -> None:
        zones = ({"cpu": "8", GPU: "4"}, {"cpu": "8", "nic": "1"})
        asked = guaranteed(cpu="2", gpu="1", nic="1")
        question = {"topology": node(*zones, policy="single-numa-node"), "pod": asked, "placed": [{"0": {GPU: "4"}}]}
        (answer,), _ = ask("check", question)
        assert answer["reason"]["code"] == "ZonesApart"
        assert answer["reason"]["message"] == (
            "node n1 has no zones with enough of cpu=2, nic=1, nvidia.com/gpu=1 together, however empty; "
            "zone 0 comes nearest and lacks nic=1"
        )

    def test_what_does_not_fit_because_some_is_reserved_says_so(self) -> None:
        """Four CPUs of a zone with four, one of them reserved: the kubelet wants one zone, and none has them."""
        found = node({"cpu": "3", GPU: "4"}, {"cpu": "3", GPU: "4"})
        for zone in found["zones"]:
            zone["resources"][0]["capacity"] = "4"
        asked = guaranteed(cpu="4", gpu="1")
        (answer,), _ = ask("check", {"topology": found, "pod": asked, "placed": [{"0": {GPU: "4"}}, {"1": {GPU: "4"}}]})
        assert answer["reason"]["message"] == (
            "node n1 has zones too small for 4 cpu "
            "(at most 3 in as many as policy restricted allows, beside 1 reserved or broken)"
        )

    def test_of_full_zones_one_that_would_do_when_empty_comes_nearest(self) -> None:
        """Zone 0 has no such card at all, so what it lacks helps nobody."""
        zones = ({"cpu": "8", GPU: "4"}, {"cpu": "8", GPU: "4", "nic": "1"})
        asked = guaranteed(cpu="2", gpu="1", nic="1")
        question = {"topology": node(*zones, policy="single-numa-node"), "pod": asked, "placed": [{"1": {GPU: "4"}}]}
        (answer,), _ = ask("check", question)
        assert answer["reason"]["message"].endswith("zone 1 comes nearest and lacks nvidia.com/gpu=1")

    @pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
    def test_memory_that_is_in_use_is_told_of_and_in_its_unit(self, policy: str) -> None:
        """Who has memory in one zone keeps it from being joined with others, but it is not that which stands against the pod."""
        zones = node({"cpu": "8", "memory": "8Gi"}, {"cpu": "8", "memory": "8Gi"}, policy=policy)
        placed = [{"0": {"memory": "6Gi"}}, {"1": {"memory": "7Gi"}}]
        (answer,), _ = ask("check", {"topology": zones, "pod": guaranteed(cpu="2", memory="3Gi"), "placed": placed})
        assert answer["reason"]["code"] == "ZonesFull"
        assert answer["reason"]["message"].endswith("zone 0 comes nearest and lacks memory=1Gi")

    def test_what_is_not_known_is_told(self) -> None:
        (answer,), _ = ask(
            "check", {"topology": node({"cpu": "8"}), "pod": guaranteed(cpu="4", gpu="1"), "kubelet": {"maxNUMANodes": 0}}
        )
        assert answer["warnings"] == [
            "the zones do not report nvidia.com/gpu: taken as not aligned",
            "a kubelet that allows 0 NUMA nodes does not start on 1",
        ]

    def test_broken_lines_do_not_stop_the_others(self) -> None:
        good = {"id": "good", "topology": node(*ZONES), "pod": guaranteed(cpu="4")}
        lines: list[Json | str] = [
            "{",
            "[]",
            '{"id": 7}',
            {**good, "id": "zone", "placed": [{"9": {"cpu": "1"}}]},
            {**good, "id": "amount", "placed": [{"0": {"cpu": "x"}}]},
            {**good, "id": "negative", "placed": [{"0": {"cpu": "-1"}}]},
            {**good, "id": "shape", "topology": {"zones": 3}},
            {**good, "id": "quantity", "pod": guaranteed(cpu="many")},
            '{"topology": ' + "[" * 100_000,
            good,
        ]
        answers, code = ask("check", *lines)
        assert code == 2
        assert len(answers) == len(lines)
        assert answers[-1]["admit"]
        assert all(answer["invalid"] for answer in answers[:-1])
        assert answers[3]["invalid"] == ["placed[0]: zone '9' is not one of the topology's (0, 1)"]
        assert answers[2]["id"] == 7


class TestMerge:
    def test_answers_as_the_contract_says(self) -> None:
        line = {
            "id": "z",
            "policy": "restricted",
            "preferClosestNUMA": False,
            "numaNodes": [0, 1],
            "numaDistances": {"0": [10, 20], "1": [20, 10]},
            "providersHints": [None, {"cpu": [{"numaNodes": [0], "preferred": True}], "nic": None}],
        }
        assert ask("merge", line) == ([{"id": "z", "hint": {"numaNodes": [0], "preferred": True}, "admit": True}], 0)
        line["providersHints"][1]["gpu"] = []  # type: ignore[index]
        assert ask("merge", line)[0][0] == {"id": "z", "hint": {"numaNodes": [0], "preferred": False}, "admit": False}

    @pytest.mark.parametrize("more", [{"policy": "strict"}, {"numaNodes": [5000]}, {"numaNodes": [-1]}, {"providersHints": [3]}])
    def test_wrong_lines_say_what_is_wrong(self, more: Json) -> None:
        answers, code = ask("merge", {"id": 1, "policy": "restricted", "numaNodes": [0], "providersHints": [], **more})
        assert code == 2
        assert answers[0]["invalid"]
        assert answers[0]["id"] == 1


class TestWhoIsGuaranteed:
    def test_the_written_class_counts(self) -> None:
        assert is_guaranteed(pod({"gpu": 1}, qos="Guaranteed"))
        assert not is_guaranteed(pod({"cpu": 1, "memory": 1}, qos="Burstable"))

    def test_without_one_it_is_worked_out(self) -> None:
        assert is_guaranteed(pod({"cpu": 1, "memory": 1}, qos=""))
        assert not is_guaranteed(pod({"cpu": 1}, qos=""))
        assert not is_guaranteed(pod({"cpu": 1, "memory": 1}, {"cpu": 1}, qos=""))

    def test_pod_level_resources_take_cpu_and_memory_out(self) -> None:
        whole = {"limits": {"cpu": "4", "memory": "8"}, "requests": {"cpu": "4", "memory": "8"}}
        given = pod({"cpu": 4, "memory": 8, "gpu": 1}, qos="Guaranteed", resources=whole)
        assert [name for name, _ in demand(given).pod] == [GPU]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_of_the_page_say_what_the_page_says(example: Path) -> None:
    (answer,), code = ask("check", json.loads(example.read_text()))
    assert code == 0
    assert answer["admit"] == ("admitted" in example.stem)


def test_there_are_three_worked_examples() -> None:
    assert len(list(EXAMPLES.glob("*.json"))) == 3
