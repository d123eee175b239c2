"""``dray devices``: the state of every device, and who has it."""

from __future__ import annotations

import json
from typing import Any

from tests.inspect.conftest import Plain, Run, claim, healthy, node, result, slice_


def states(dray: Run, objects: list[Plain], *arguments: str) -> dict[str, str]:
    answer = dray("devices", objects, "-o", "json", *arguments)
    assert answer.exit_code == 0
    return {f"{row['pool']}/{row['device']}": row["state"] for row in json.loads(answer.stdout)["devices"]}


def test_each_device_is_free_or_has_users(dray: Run) -> None:
    assert states(dray, healthy()) == {"n1/g0": "allocated", "n1/g1": "free", "n2/g0": "free", "n2/g1": "free"}
    rows: list[dict[str, Any]] = json.loads(dray("devices", healthy(), "-o", "json").stdout)["devices"]
    assert rows[0]["users"] == [{"claim": "ns/used", "pods": ["ns/train"], "request": "gpu"}]
    assert rows[0]["node"] == "n1"


def test_taints_of_the_slice_and_of_rules_count_when_they_keep_requests_away(dray: Run) -> None:
    taint = {"key": "bad", "effect": "NoExecute"}
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"pool": "n2"}, "taint": {"key": "drain", "value": "now", "effect": "NoSchedule"}},
    }
    quiet = {"key": "note", "effect": "None"}
    devices = [{"name": "a", "taints": [taint]}, {"name": "b", "taints": [quiet]}]
    objects = [slice_("s1", devices), slice_("s2", [{"name": "c"}], node="n2"), rule]
    assert states(dray, objects) == {"n1/a": "tainted", "n1/b": "free", "n2/c": "tainted"}
    rows = json.loads(dray("devices", objects, "-o", "json").stdout)["devices"]
    assert rows[2]["taints"] == ["drain=now:NoSchedule"]


def test_a_pool_that_is_being_published_is_incomplete(dray: Run) -> None:
    assert states(dray, [slice_("s", [{"name": "a"}], count=2)]) == {"n1/a": "incomplete"}


def test_only_the_newest_generation_counts(dray: Run) -> None:
    old, new = slice_("old", [{"name": "a"}]), slice_("new", [{"name": "b"}])
    new["spec"]["pool"]["generation"] = 2
    assert states(dray, [old, new]) == {"n1/b": "free"}


def test_shares_leave_a_device_partial_until_nothing_is_left(dray: Run) -> None:
    nic = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
    one = claim("a", result("nic", shareID="1", consumedCapacity={"bandwidth": "4G"}))
    two = claim("b", result("nic", shareID="2", consumedCapacity={"bandwidth": "6G"}))
    assert states(dray, [slice_("s", [nic]), one]) == {"n1/nic": "partial"}
    assert states(dray, [slice_("s", [nic]), one, two]) == {"n1/nic": "allocated"}
    report = json.loads(dray("devices", [slice_("s", [nic]), one], "-o", "json").stdout)
    assert report["nodes"] == [{"node": "n1", "devices": 1, "states": {"partial": 1}, "largestShare": {"bandwidth": "6G"}}]


def test_what_its_counter_set_cannot_take_beside_what_is_in_use_is_incompatible(dray: Run) -> None:
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]

    def part(name: str, memory: str, group: str) -> Plain:
        entry = {"counterSet": "card", "counters": {"memory": {"value": memory}}, "compatibilityGroups": [group]}
        return {"name": name, "consumesCounters": [entry]}

    parts = [part("a", "20Gi", "mig"), part("b", "20Gi", "mig"), part("c", "20Gi", "vgpu"), part("d", "80Gi", "mig")]
    objects = [slice_("s0", [], count=2, sharedCounters=counters), slice_("s1", parts, count=2), claim("x", result("a"))]
    assert states(dray, objects) == {
        "n1/a": "allocated",
        "n1/b": "free",
        "n1/c": "incompatible",
        "n1/d": "incompatible",
    }
    wide = dray("devices", objects, "-o", "wide").stdout
    assert "memory needs 80Gi, 60Gi left" in wide
    assert "in use mig, offers vgpu" in wide


def test_what_is_in_use_on_a_counter_set_is_the_groups_that_all_of_it_has(dray: Run) -> None:
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]

    def part(name: str, *groups: str) -> Plain:
        entry = {"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}, "compatibilityGroups": list(groups)}
        return {"name": name, "consumesCounters": [entry]}

    def of_foo(*claims: Plain) -> str:
        parts = [
            part("foo", "foo", "foobar"),
            part("bar", "bar", "foobar"),
            part("baz", "baz"),
            part("more", "foo"),
            part("none"),
        ]
        published = [slice_("s0", [], count=2, sharedCounters=counters), slice_("s1", parts, count=2)]
        rows = json.loads(dray("devices", [*published, *claims], "-o", "json").stdout)["devices"]
        return "; ".join(f"{row['device']}: {row['detail']}" for row in rows if row["device"] in ("more", "none"))

    foo, bar, baz = (claim(name, result(name)) for name in ("foo", "bar", "baz"))
    withdrawn = claim("gone", result("gone", compatibilityGroups={"card": ["mig"]}))
    assert of_foo(foo) == "more: ; none: counter set card: in use foo, foobar, offers no group"
    assert "more: counter set card: in use foobar, offers foo;" in of_foo(foo, bar)
    assert "more: counter set card: in use devices that share no group, offers foo;" in of_foo(foo, baz)
    assert of_foo(claim("none", result("none"))).startswith("more: counter set card: in use devices without groups, offers foo;")
    assert "more: counter set card: in use mig, offers foo;" in of_foo(withdrawn)


def test_can_be_narrowed(dray: Run) -> None:
    assert set(states(dray, healthy(), "--node", "n2", "--state", "free")) == {"n2/g0", "n2/g1"}


def test_for_people_there_is_a_line_for_each_and_a_total(dray: Run) -> None:
    told = dray("devices", healthy()).stdout
    assert "4 devices: 3 free, 1 allocated. Most free on one node: 2 on n2." in told
    assert "ns/train" in told
    assert "\n1 device: 1 allocated." in dray("devices", healthy(), "--state", "allocated").stdout


def test_a_node_or_driver_that_is_not_there_is_a_mistake(dray: Run) -> None:
    for arguments, told in (
        (("--node", "n3"), 'node "n3" does not exist'),
        (("--driver", "gpu.exmaple.com"), "no driver gpu.exmaple.com publishes devices; did you mean gpu.example.com?"),
    ):
        answer = dray("devices", healthy(), *arguments)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert told in answer.stderr
    assert dray("devices", [*healthy(), node("bare")], "--node", "bare").exit_code == 0


def test_none_are_told_only_where_slices_were_read(dray: Run) -> None:
    answer = dray("devices", [node("n")])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "the files have no resourceslices.resource.k8s.io, which this command needs" in answer.stderr
    assert "No devices" in dray("devices", [slice_("s", [])]).stdout


def test_very_many_are_told_by_node(dray: Run) -> None:
    objects = [slice_(f"s{i}", [{"name": f"g{j}"} for j in range(8)], node=f"n{i}") for i in range(50)]
    told = dray("devices", objects).stdout
    assert len(told.splitlines()) < 60
    assert "400 devices: 400 free" in told
    assert len(dray("devices", objects, "-o", "wide").stdout.splitlines()) > 400
    assert "g7" in dray("devices", objects, "--node", "n7").stdout


def test_narrowed_down_only_their_counter_sets_and_nodes_are_told(dray: Run) -> None:
    counters = {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "8Gi"}}}]}
    two = [
        slice_("s1", [{"name": "a"}], count=2),
        slice_("c1", [], count=2, **counters),
        slice_("s2", [{"name": "b"}], node="n2"),
    ]
    report = json.loads(dray("devices", two, "--node", "n2", "-o", "json").stdout)
    assert [row["device"] for row in report["devices"]] == ["b"]
    assert report["counterSets"] == []
    assert [row["node"] for row in report["nodes"]] == ["n2"]
    assert len(json.loads(dray("devices", two, "-o", "json").stdout)["counterSets"]) == 1
