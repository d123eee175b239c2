"""Files as a cluster: what kubectl writes is read, and what is broken is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dray.cli import root
from dray.explain.snapshot import SnapshotError, from_files, undecodable
from tests.inspect.conftest import Plain, Run, claim, healthy, node, pod


def test_lists_documents_json_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        yaml.safe_dump_all([node("n1"), {"apiVersion": "v1", "kind": "List", "items": [node("n2")]}])
    )
    (tmp_path / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod("p")]}))
    world = from_files([tmp_path]).world
    assert set(world.all(NODES)) == {"n1", "n2"}
    assert set(world.all(PODS)) == {"ns/p"}


def test_times_without_quotes_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  creationTimestamp: 2026-01-01T00:00:00Z\n")
    assert from_files([file]).world.get(PODS, "default/p").metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_kinds_that_do_not_matter_are_counted_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}))
    assert from_files([file]).left_out == {"Thing": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read"),
        ("a: [", "cannot be read"),
        ("[1, 2]", "is not a Kubernetes object"),
        ("apiVersion: v1\nkind: Pod\n", "Pod without metadata.name"),
        ("apiVersion: v1\nkind: List\nitems: 5\n", "items is not a list"),
        ("{apiVersion: v1, kind: Pod, spec: &a {containers: [*a]}}", "nested too deeply"),
        ("{apiVersion: v1, kind: Pod, spec: " + "[" * 500 + "]" * 500 + "}", "nested too deeply"),
        ('{"apiVersion": "v1", "kind": "Pod", "spec": ' + "[" * 9000 + "]" * 9000 + "}", "nested too deeply"),
        ("a: &a0 [x, x, x]\n" + "".join(f"b{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 12)), "its aliases make it"),
        ("apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\n", "take it as resource.k8s.io/v1"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_file(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(SnapshotError, match=says) as raised:
        from_files([file])
    assert "broken.yaml" in str(raised.value)


def test_anchors_and_aliases_are_read(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Node, metadata: {name: a, labels: &l {zone: z}}}\n"
        "- {apiVersion: v1, kind: Node, metadata: {name: b, labels: *l}}\n"
    )
    assert from_files([file]).world.get(NODES, "b").metadata.labels == {"zone": "z"}


def test_a_missing_file_is_trouble_and_not_an_answer(tmp_path: Path) -> None:
    answer = CliRunner().invoke(root, ["verify", "--snapshot", str(tmp_path / "none.yaml")])
    assert answer.exit_code == 2
    assert "does not exist" in answer.stderr


def test_an_object_of_the_wrong_shape_is_left_out_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    broken = pod("b")
    broken["spec"]["containers"] = "none"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*healthy(), broken]}))
    answer = CliRunner().invoke(root, ["verify", "--snapshot", str(file), "-o", "json"])
    assert answer.exit_code == 0
    assert "skipped: Pod ns/b" in answer.stderr
    assert json.loads(answer.stdout)["checked"]["pods"] == 1


def test_claims_that_somebody_wrote_have_their_defaults(tmp_path: Path) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**claim, "spec": {"devices": {"requests": [request]}}}))
    (tmp_path / "wrong.yaml").write_text(
        yaml.safe_dump({**claim, "metadata": {"name": "w"}, "spec": {"devices": {"requests": 1}}})
    )
    world = from_files([tmp_path]).world
    (found,) = world.all(RESOURCE_CLAIMS).values()
    asked = found.spec.devices.requests[0].exactly
    assert (asked.allocation_mode, asked.count) == ("ExactCount", 1)


def test_files_and_a_cluster_at_once_are_a_contradiction(tmp_path: Path) -> None:
    answer = CliRunner().invoke(root, ["verify", "--snapshot", "a", "--context", "b"])
    assert answer.exit_code == 2
    assert "cannot be combined" in answer.stderr


def wrong_in(kind: str, *path: str | int) -> list[Plain]:
    """A cluster in which one value of one object is nonsense."""
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ns"}, "series": {}}
    objects = [*healthy(), pod("p"), claim("c"), {**event, "reason": "FailedScheduling", "involvedObject": "nobody"}]
    (found, *_) = [each for each in objects if each["kind"] == kind]
    for step in path[:-1]:
        found = found.setdefault(step, {}) if isinstance(found, dict) else found[step]
    found[path[-1]] = "nonsense"
    return objects


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (
            ("Pod", "spec", "containers", 0, "resources", "requests", "cpu"),
            "spec.containers[0].resources.requests.cpu: quantities",
        ),
        (("Pod", "metadata", "creationTimestamp"), "metadata.creationTimestamp: Invalid isoformat string: 'nonsense'"),
        (("Node", "status", "allocatable", "cpu"), "Node n1: status.allocatable.cpu: quantities must match"),
        (("Event", "series", "lastObservedTime"), "Event ns/e: series.lastObservedTime: Invalid isoformat string"),
    ],
)
@pytest.mark.parametrize("command", [("why",), ("verify",), ("devices",), ("zones",)])
def test_nonsense_in_a_file_is_told_with_its_place(
    command: tuple[str, ...], place: tuple[str | int, ...], says: str, dray: Run
) -> None:
    answer = dray(command[0], wrong_in(*place), *command[1:])  # type: ignore[arg-type]
    assert answer.exit_code == 2
    assert says in answer.output


def test_an_event_about_nothing_says_nothing(dray: Run) -> None:
    assert dray("why", wrong_in("Event", "series"), "p", "-n", "ns").exit_code == 0


@pytest.mark.parametrize(
    ("devices", "taken"),
    [
        ("gpu", False),
        ({"requests": ["gpu"]}, False),
        ({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "tolerations": "all"}}]}, False),
        ({"requests": [None, {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}, True),
    ],
)
def test_a_template_is_read_as_the_claims_that_it_makes(devices: object, taken: bool, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    file.write_text(yaml.safe_dump({**template, "spec": {"spec": {"devices": devices}}}))
    snapshot = from_files([file])
    assert (RESOURCE_CLAIM_TEMPLATES, "default/t") in snapshot.objects
    assert ("default/t" in snapshot.world.all(RESOURCE_CLAIM_TEMPLATES)) is taken
    assert any("ResourceClaimTemplate default/t: " in told for told in undecodable(snapshot)) is not taken
