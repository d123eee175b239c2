"""The rows of the behaviour notes (``../shared/spec/numa.md``, section 5), read in place as questions for ``dray numa check``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
SHARED = Path(__file__).parents[2] / ".." / "shared"
SPEC = SHARED / "spec" / "numa.md"
VECTORS = SHARED / "vectors" / "topologymanager"

needs_spec = pytest.mark.skipif(not SPEC.is_file(), reason="the behaviour notes (../shared/spec/numa.md) are not here")
needs_vectors = pytest.mark.skipif(
    not VECTORS.is_dir(), reason="the upstream cases (../shared/vectors/topologymanager) are not here"
)

POLICIES = {"single": "single-numa-node", "restr": "restricted", "b-e": "best-effort", "none": "none"}
SCOPES = {"pod": "pod", "cont": "container"}
RESOURCES = {"gpu": "nvidia.com/gpu", "nic": "example.com/nic"}

# What a row says in its note rather than in its columns.
NOTED: dict[str, Json] = {
    "K09": {"ignore": ["memory"]},
    "K52": {"kubelet": {"cpuManagerPolicy": "none"}},
    "K53": {"ignore": ["cpu"]},
    "K54": {"kubelet": {"memoryManagerPolicy": "None"}},
    "K55": {"ignore": ["memory"]},
    "K81": {"kubelet": {"preferClosestNUMA": True}},
    **{name: {"placed": [{"0": {"memory": "5"}}]} for name in ("K45", "K46")},
    **{name: {"placed": [{"0": {"memory": "100"}, "1": {"memory": "20"}}]} for name in ("K47", "K48", "K49", "K50")},
}
# Distances with which {2,3} is nearer than {0,1}: the row gives none.
CLOSEST = {"K81": [[10, 20, 20, 20], [20, 10, 20, 20], [20, 20, 10, 11], [20, 20, 11, 10]]}


@cache
def rows() -> dict[str, list[str]]:
    """The cells of every row of every table in the section on vectors, by the row's name."""
    if not SPEC.is_file():
        return {}
    found = {}
    for line in SPEC.read_text().split("## 5. Test vectors")[1].split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(r"[A-Z]\d\d[a-z]?", cells[0]):
            found[cells[0]] = cells
    return found


def admission_rows() -> list[str]:
    return [name for name in rows() if name.startswith("K")]


def question(name: str) -> Json:
    _, _, zones, policy, qos, pod, *_ = rows()[name]
    kind, _, scope = policy.partition("/")
    topology = {
        "metadata": {"name": "n1"},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": POLICIES[kind]},
            {"name": "topologyManagerScope", "value": SCOPES[scope]},
        ],
        "zones": _zones(zones),
    }
    if name in CLOSEST:
        for row, zone in zip(CLOSEST[name], topology["zones"]):  # type: ignore[call-overload]
            zone["costs"] = [{"name": f"node-{other}", "value": value} for other, value in enumerate(row)]
    return {"id": name, "topology": topology, "pod": _pod(pod, qos), **NOTED.get(name, {})}


def expected_masks(name: str) -> list[list[int]] | None:
    """The zones of each container as the kubelet column has them; None when it does not admit or does not say."""
    cell = rows()[name][6]
    found = [[int(zone) for zone in mask.split(",")] for mask in re.findall(r"\{([\d,]+)\}", cell)]
    return found if cell.startswith("admit {") else None


def expected_admit(name: str) -> bool:
    return rows()[name][6].startswith("admit")


def _zones(text: str) -> list[Json]:
    times = re.fullmatch(r"(\d+)×\[(.*)\]", text)
    parts = [times[2]] * int(times[1]) if times else re.findall(r"z\d+\[(.*?)\]", text)
    return [{"name": f"node-{number}", "type": "Node", "resources": _resources(part)} for number, part in enumerate(parts)]


def _resources(text: str) -> list[Json]:
    found = []
    for part in text.split(","):
        name, _, amounts = part.strip().partition(" ")
        available, *rest = amounts.split("/")
        allocatable = rest[0] if rest else available
        capacity = rest[1] if len(rest) > 1 else allocatable
        found.append(
            {"name": RESOURCES.get(name, name), "available": available, "allocatable": allocatable, "capacity": capacity}
        )
    return found


def _pod(text: str, qos: str) -> Json:
    inits, apps = [], []
    for number, (role, needs) in enumerate(re.findall(r"(?:(init|side):)?\{(.*?)\}", text)):
        amounts = dict(part.strip().split(" ") for part in needs.split(","))
        amounts = {RESOURCES.get(name, name): value for name, value in amounts.items()}
        container: Json = {"name": f"c{number}", "resources": {"requests": amounts, "limits": amounts}}
        if role == "side":
            container["restartPolicy"] = "Always"
        (inits if role else apps).append(container)
    classes = {"G": "Guaranteed", "B": "Burstable"}
    return {"spec": {"initContainers": inits, "containers": apps}, "status": {"qosClass": classes[qos]}}
