"""The map is what `dray devices` says, and stays so however the cluster changes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from dray.api.kinds import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.explain.inventory import STATES, inventory
from dray.explain.published import Published
from dray.web.moments import Moment
from dray.web.picture import RESTING, Painter, Picture, changed
from tests.web.clusters import DRIVER, claim, failed, large, rule, small, world_of

NOW = 1_800_000_000.0


def moment(objects: list[dict[str, Any]], number: int = 1) -> Moment:
    return Moment(number, NOW, world_of(objects), ())


def states(picture: Picture) -> Counter[str]:
    return Counter(picture.states[cell.state] for pool in picture.pools.values() for cell in pool.devices)


def test_states_are_those_of_the_command_line() -> None:
    world = world_of(small())
    told = Counter(row.state for row in inventory(Published(world)).devices)
    assert states(Painter().paint(Moment(1, NOW, world, ()))) == told
    assert told["tainted"] == 1
    assert told["allocated"] == 2


def test_a_device_shows_zone_root_classes_users_and_what_it_is_cut_from() -> None:
    picture = Painter().paint(moment(small()))
    gpu = next(cell for cell in picture.pools["gpu.dray.dev/gpu8-0"].devices if cell.name == "gpu-1")
    assert (gpu.zone, gpu.root, gpu.pods, gpu.used) == (0, "pci0000:00", ["team/p-gpu8-0-gpu-1"], 100)
    assert [picture.classes[number] for number in gpu.classes] == ["gpu.dray.dev"]
    part = next(cell for cell in picture.pools["mig.dray.dev/mig-0"].devices if cell.name == "gpu-0-1g-0")
    assert part.within == "gpu-0"
    assert {picture.classes[number] for number in part.classes} == {"mig-1g.dray.dev", "mig.dray.dev"}
    assert {(bar.within, bar.counter) for bar in picture.pools["mig.dray.dev/mig-0"].bars} == {
        (f"gpu-{number}", counter) for number in (0, 1) for counter in ("memory", "slices")
    }


def test_what_did_not_change_is_the_same_part_and_only_what_changed_is_told() -> None:
    objects, painter = small(), Painter()
    first = moment(objects)
    before = painter.paint(first)
    first.world.put(RESOURCE_CLAIMS, {**claim("new", "gpu-3", node="gpu8-1"), "metadata": {"name": "new", "uid": "new"}})
    after = painter.paint(msgspec.structs.replace(first, number=2))
    told = changed(before, after)
    assert told is not None
    assert list(told.pools) == ["gpu.dray.dev/gpu8-1"]
    assert told.nodes == {}


def test_a_heartbeat_is_not_a_change() -> None:
    objects, painter = small(), Painter()
    first = moment(objects)
    before = painter.paint(first)
    node = next(each for each in objects if each["kind"] == "Node")
    again = {**node, "metadata": {**node["metadata"], "resourceVersion": "99"}, "status": {**node["status"]}}
    first.world.put(NODES, again)
    told = changed(before, painter.paint(first))
    assert told is not None
    assert not told.nodes
    assert not told.pools


@pytest.mark.parametrize("seed", range(8))
def test_a_picture_made_from_changes_equals_a_fresh_one(seed: int) -> None:
    rng, painter = random.Random(seed), Painter()
    base = [each for each in large(4, busy=0) if each["kind"] in ("Node", "ResourceSlice", "DeviceClass")]
    told: Picture | None = None
    for step in range(12):
        claims = [
            claim(f"c{number}", f"gpu-{rng.randrange(8)}", node=f"node-{rng.randrange(4):05}", pod=f"p{number}")
            for number in range(rng.randrange(6))
        ]
        rules = [rule("r", pool=f"node-{rng.randrange(4):05}")] if rng.random() < 0.4 else []
        here = [each for each in base if rng.random() < 0.9] + claims + rules
        painted = painter.paint(moment(here, step))
        fresh = Painter().paint(moment(here, step))
        assert msgspec.json.encode(painted) == msgspec.json.encode(fresh)
        if told is not None and (difference := changed(told, painted)) is not None:
            pools = {key: part for key, part in {**told.pools, **difference.pools}.items() if part is not None}
            assert pools == painted.pools
        told = painted


def test_a_device_that_is_being_attached_is_marked() -> None:
    objects = small()
    waiting = claim("slow", "gpu-5")
    waiting["status"]["allocation"]["devices"]["results"][0]["bindingConditions"] = ["example.com/attached"]
    picture = Painter().paint(moment([*objects, waiting]))
    marks = {cell.name: cell.mark for cell in picture.pools["gpu.dray.dev/gpu8-0"].devices}
    assert [name for name, mark in marks.items() if mark] == ["gpu-5"]


def test_a_class_that_nobody_understands_has_no_devices() -> None:
    broken = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "a-broken"},
        "spec": {"selectors": [{"cel": {"expression": "device."}}]},
    }
    picture = Painter().paint(moment([*small(), broken]))
    number = picture.classes.index("a-broken")
    assert not any(number in cell.classes for pool in picture.pools.values() for cell in pool.devices)


def test_a_slice_of_a_node_that_is_gone_still_shows() -> None:
    objects = [each for each in small() if each["kind"] != "Node"]
    picture = Painter().paint(moment(objects))
    assert picture.nodes == {}
    assert picture.pools["gpu.dray.dev/gpu8-0"].node == "gpu8-0"
    assert len(STATES) == len(picture.states)
    assert world_of(objects).all(RESOURCE_SLICES)


def test_a_device_that_rests_after_a_failure_is_marked_until_its_rest_is_over() -> None:
    device, painter = f"{DRIVER}/gpu8-0/gpu-5", Painter()
    world, events = world_of(small()), (failed(device, NOW),)
    marks = {}
    for after in (0.0, 59.0, 61.0):
        picture = painter.paint(Moment(1, NOW + after, world, events))
        cells = [(f"{key}/{cell.name}", cell.mark) for key, pool in picture.pools.items() for cell in pool.devices]
        marks[after] = [name for name, mark in cells if mark == RESTING]
    assert marks == {0.0: [device], 59.0: [device], 61.0: []}
