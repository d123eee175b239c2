"""``dray story``: from a running scheduler, or put together from what the cluster shows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from aiohttp.test_utils import unused_port
from click.testing import CliRunner

from dray.api.kinds import PODS
from dray.cli import root
from dray.cli.source import Source
from dray.cluster.world import World
from dray.explain.snapshot import KINDS, Snapshot
from dray.runtime.health import Health
from dray.runtime.stories import Line, Stories
from tests.inspect.conftest import Plain, Run, healthy, pod


def event(second: str, by: str, reason: str, note: str) -> Plain:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "ns"},
        "regarding": {"kind": "Pod", "name": "train", "namespace": "ns", "uid": "uid-train"},
        "eventTime": f"2026-01-01T00:00:{second}Z",
        "reportingController": by,
        "reason": reason,
        "note": note,
    }


def test_is_put_together_from_pod_claims_and_events_in_order(dray: Run) -> None:
    objects = healthy()
    objects[5]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    objects[5]["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:03Z"
    objects[6]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    ]
    refused = event("02.500000", "dray", "FailedScheduling", "0/2 nodes are available")
    other = {**refused, "metadata": {"name": "f", "namespace": "ns"}, "regarding": {**refused["regarding"], "name": "x"}}
    answer = dray("story", [*objects, refused, other], "train", "-n", "ns", "-o", "json")
    assert answer.exit_code == 0
    told = json.loads(answer.stdout)["story"]
    assert [line["what"] for line in told] == ["created", "created", "FailedScheduling", "allocated", "PodScheduled=True"]
    shown = dray("story", [*objects, refused], "train", "-n", "ns").stdout
    assert "+2.500s" in shown
    assert "0/2 nodes are available" in shown


def test_the_claim_for_extended_resources_is_told_of_too(dray: Run) -> None:
    objects = healthy()
    name = objects[5]["metadata"]["name"]
    objects[5]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    del objects[6]["spec"]["resourceClaims"]
    objects[6]["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name, "requestMappings": []}
    told = json.loads(dray("story", objects, "train", "-n", "ns", "-o", "json").stdout)["story"]
    assert ("created", f"claim ns/{name}") in [(line["what"], line["object"]) for line in told]


def test_within_a_second_the_order_is_that_of_a_life(dray: Run) -> None:
    objects, at = healthy(), "2026-01-01T00:00:00Z"
    objects[5]["metadata"]["creationTimestamp"] = at
    objects[5]["status"]["allocation"]["allocationTimestamp"] = at
    objects[6]["status"] |= {
        "startTime": at,
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": at} for name in ("Ready", "PodScheduled")],
    }
    told = json.loads(
        dray("story", [*objects, event("00.500000", "kubelet", "Pulled", "")], "train", "-n", "ns", "-o", "json").stdout
    )["story"]
    life = ["created", "created", "allocated", "PodScheduled=True", "started", "Pulled", "Ready=True"]
    assert [line["what"] for line in told] == life


def test_scripts_get_the_same_as_json_and_as_yaml(dray: Run) -> None:
    told = json.loads(dray("story", healthy(), "train", "-n", "ns", "-o", "json").stdout)
    assert told["pod"] == "ns/train"
    assert yaml.safe_load(dray("story", healthy(), "train", "-n", "ns", "-o", "yaml").stdout) == told


def test_the_pod_is_named_with_the_namespace_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(KINDS)
    world.replace(PODS, [pod("train")])
    monkeypatch.setattr(Source, "namespace", lambda self, asked: asked or "ns")
    monkeypatch.setattr(Source, "read", lambda self, needs: Snapshot(world, {}, Counter()))
    answer = CliRunner().invoke(root, ["story", "train", "-o", "json"], catch_exceptions=False)
    assert json.loads(answer.stdout)["pod"] == "ns/train"


def test_a_pod_that_is_not_there_is_trouble(dray: Run) -> None:
    assert dray("story", healthy(), "none", "-n", "ns").exit_code == 2


class TestFromARunningScheduler:
    @pytest.fixture
    def server(self) -> str:
        return f"127.0.0.1:{unused_port()}"

    async def asked(self, server: str, *arguments: str) -> tuple[int, str]:
        import asyncio

        stories = Stories()
        stories.tell("ns/train", Line(1_767_225_600.0, "write", "create pods/binding ns/train", "scheduler", "n1"))
        health = Health(stories=stories)
        url = await health.serve(server)
        try:
            run = CliRunner().invoke
            answer = await asyncio.to_thread(run, root, ["story", *arguments, "--server", url, "-o", "json"])
            return answer.exit_code, answer.stdout + answer.stderr
        finally:
            await health.close()

    async def test_every_write_is_told(self, server: str) -> None:
        code, told = await self.asked(server, "train", "-n", "ns")
        assert code == 0, told
        assert json.loads(told)["story"][0]["object"] == "create pods/binding ns/train"

    async def test_a_pod_that_it_does_not_know_is_trouble(self, server: str) -> None:
        code, told = await self.asked(server, "other", "-n", "ns")
        assert code == 2, told

    def test_no_server_is_trouble(self, server: str, tmp_path: Path) -> None:
        answer = CliRunner().invoke(root, ["story", "train", "-n", "ns", "--server", f"http://{server}"])
        assert answer.exit_code == 2


def test_a_pod_of_another_namespace_is_named(dray: Run) -> None:
    answer = dray("story", healthy(), "train", "-n", "elsewhere")
    assert answer.exit_code == 2
    assert answer.stderr.strip() == 'Error: pod "train" not found in namespace "elsewhere"; did you mean ns/train?'


class TestOfAPodThatIsGone:
    def evicted(self) -> list[Plain]:
        by, why = "device-taint-eviction-controller", "DeviceTaintManagerEviction"
        marked = event("05.000000", by, why, "Marking for deletion: k:NoExecute on gpu.example.com/n1/g0 by rule r")
        placed = event("01.000000", "dray", "Scheduled", "Successfully assigned ns/train to n1")
        others = [each for each in healthy() if each["metadata"]["name"] != "train"]
        return [*others, marked, {**placed, "metadata": {"name": "f", "namespace": "ns"}}]

    def test_events_tell_what_became_of_it(self, dray: Run) -> None:
        told = json.loads(dray("story", self.evicted(), "train", "-n", "ns", "-o", "json").stdout)["story"]
        assert [line["what"] for line in told] == ["Scheduled", "DeviceTaintManagerEviction"]
        assert told[-1]["detail"].endswith("k:NoExecute on gpu.example.com/n1/g0 by rule r")

    def test_why_says_what_was_told_of_it_last(self, dray: Run) -> None:
        answer = dray("why", self.evicted(), "train", "-n", "ns")
        assert answer.exit_code == 2
        assert 'pod "train" no longer exists in namespace "ns"' in answer.output
        assert "DeviceTaintManagerEviction: Marking for deletion: k:NoExecute on gpu.example.com/n1/g0 by rule r" in answer.output

    def test_a_pod_that_nobody_heard_of_is_not_found(self, dray: Run) -> None:
        for command in ("story", "why"):
            assert 'pod "other" not found in namespace "ns"' in dray(command, self.evicted(), "other", "-n", "ns").output


def test_the_claim_for_extended_resources_is_a_part_of_it(dray: Run) -> None:
    objects = healthy()
    objects[5]["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:03Z"
    classic = pod("classic", node="n1")
    classic["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "used", "requestMappings": []}
    told = json.loads(dray("story", [*objects, classic], "classic", "-n", "ns", "-o", "json").stdout)["story"]
    assert ("allocated", "gpu.example.com/n1/g0") in [(line["what"], line["detail"]) for line in told]
