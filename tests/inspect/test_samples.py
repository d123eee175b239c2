"""What the pages show is what the commands say: samples are run, and compared but for times, generated names and ``…``."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import EVENTS, PODS, Kind
from dray.cli import root
from dray.cluster.kubeconfig import load
from dray.cluster.remote import Remote
from tests.inspect.test_live import TEMPLATE, pod
from tests.real.upstream.embedded import dray_up

ROOT = Path(__file__).parents[2]
# A time of day, a time since, and what is appended to a generated name.
_VARIES = re.compile(
    r"\b\d\d:\d\d:\d\d\.\d+|\+\d+\.\d+s|(?<=-)(?=[a-z0-9]*\d|[bcdfghjklmnpqrstvwxz])[bcdfghjklmnpqrstvwxz2456789]{5}\b"
)


def samples(page: str, command: str) -> str:
    """What a page shows after ``$ command``, up to the next command or the end of the block."""
    text = (ROOT / page).read_text()
    _, found, rest = text.partition(f"\n$ {command}\n")
    assert found, f"{page} has no sample of {command}"
    return re.split(r"\n(?:\$ |```)", rest)[0]


def plain(text: str) -> str:
    return " ".join(_VARIES.sub("#", text).split())


def pattern(text: str) -> str:
    return ".*".join(re.escape(part.strip()) for part in plain(text).split("…"))


def says(shown: str, said: str, *, in_order: bool) -> bool:
    """Whether the sample is what was said; of a story, each line by itself: what happens within a second has no fixed order."""
    if in_order:
        return re.fullmatch(pattern(shown), plain(said), re.S) is not None
    lines = [plain(line) for line in said.splitlines()]
    return all(any(re.fullmatch(pattern(each), line) for line in lines) for each in shown.splitlines())


def compare(page: str, command: str, kubeconfig: Path) -> None:
    shown, said = samples(page, command), ""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        said = CliRunner().invoke(root, [*command.split()[1:], "--kubeconfig", str(kubeconfig)]).output
        if says(shown, said, in_order="story" not in command):
            return
        time.sleep(0.5)
    raise AssertionError(f"{page}: `{command}` now says\n\n{said}")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cluster of the demonstration, with its workloads."""
    hardware = [each for name in ("gpu8:2", "mig:1", "nic:1", "fabric:2") for each in ("--hardware", name)]
    with dray_up(
        tmp_path_factory.mktemp("up"), without="", arguments=[*hardware, "-f", ROOT / "src" / "dray" / "examples"]
    ) as server:
        yield server.kubeconfig


@pytest.mark.parametrize(("page", "command"), [("README.md", "dray why too-much"), ("docs/inspect.md", "dray story attached")])
def test_on_the_cluster_of_the_demonstration(page: str, command: str, examples: Path) -> None:
    compare(page, command, examples)


def listed(kubeconfig: Path, kind: Kind) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        remote = Remote(load(kubeconfig))
        try:
            return [msgspec.json.decode(raw) for raw in (await remote.list(kind))[0]]
        finally:
            await remote.close()

    return asyncio.run(read())


def test_events_and_pods_are_as_the_pages_show_them(examples: Path) -> None:
    end = time.monotonic() + 15
    notes: dict[str, str] = {}
    while "Started" not in notes and time.monotonic() < end:
        events = [event for event in listed(examples, EVENTS) if event["regarding"]["name"] == "attached"]
        notes = {event["reason"]: event["note"] for event in events}
        time.sleep(0.5)
    page = samples("docs/binding-conditions.md", "kubectl get events --field-selector involvedObject.name=attached")
    shown = [line.split(None, 4) for line in page.splitlines()[1:]]
    assert [(reason, message) for _, _, reason, _, message in shown] == [
        (reason, notes[reason]) for reason in ("BindingConditionsPending", "Scheduled", "Started")
    ]
    page = samples("docs/laptop-cluster.md", "kubectl get pods,resourceclaims -o wide")
    (line,) = [line.split() for line in page.splitlines() if line.startswith("pod/attached")]
    (attached,) = [found for found in listed(examples, PODS) if found["metadata"]["name"] == "attached"]
    nominated = attached["status"].get("nominatedNodeName", "<none>")
    assert line[6:8] == [attached["spec"]["nodeName"], nominated]


@pytest.fixture(scope="module")
def of_a_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the page for authors of drivers says to write, and the two pods that it speaks of."""
    page = (ROOT / "docs" / "driver-authors.md").read_text()
    (driver,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if "kind: ResourceSlice" in block]
    made = []
    for name, kind in (("first", "partition"), ("second", "timeslice")):
        asks = {"name": "part", "exactly": {"deviceClassName": f"{kind}.example.com"}}
        metadata = {"name": f"a-{kind}", "namespace": "default"}
        spec = {"devices": {"requests": [asks]}}
        made.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
        uses = pod(name)
        uses["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"a-{kind}"}]
        made.append(uses)
    folder = tmp_path_factory.mktemp("driver")
    (folder / "all.yaml").write_text(f"{driver}\n---\n{yaml.safe_dump_all(made)}")
    with dray_up(folder / "up", without="", arguments=["--nodes", "1", "-f", folder / "all.yaml"]) as server:
        yield server.kubeconfig


@pytest.mark.parametrize("command", ["dray devices -o wide", "dray why second"])
def test_for_authors_of_drivers(command: str, of_a_driver: Path) -> None:
    compare("docs/driver-authors.md", command, of_a_driver)


@pytest.fixture(scope="module")
def three_pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("three")
    (folder / "pods.yaml").write_text(yaml.safe_dump_all([TEMPLATE, *(pod(name) for name in "abc")]))
    arguments = ["--hardware", "gpu8:2", "-f", folder / "pods.yaml"]
    with dray_up(folder / "up", without="", arguments=arguments) as server:
        yield server.kubeconfig


@pytest.mark.parametrize("command", ["dray why c", "dray why"])
def test_on_two_nodes_with_three_pods(command: str, three_pods: Path) -> None:
    compare("docs/inspect.md", command, three_pods)
