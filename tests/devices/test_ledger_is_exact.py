"""The ledger against a recomputation from claims alone, after random sequences of operations."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceKey, ResourceClaim, ResourceSlice
from dray.devices import Devices
from dray.devices.ledger import Charge, charges_of
from tests.devices.building import claim, counters, device, engine, exactly, node, slice_, takes

POLICY = {"default": "1", "validRange": {"min": "1", "step": "1", "max": "8"}}


def cluster() -> Devices:
    """Two nodes: whole devices, shared ones, partitions with groups on a pool that spans both nodes."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8", "requestPolicy": POLICY}}}
    made = engine(node("n2"))
    for name in ("n1", "n2"):
        devices = [device("a"), device("b"), device("s", **shared), device("t", allowMultipleAllocations=True)]
        made.put_slice(slice_(devices, name=f"{name}-local", pool=name, nodeName=name))
        parts = [
            device(f"{name}-{way}-{i}", consumesCounters=takes("g", (way,), slots=1 + i))
            for way in ("mig", "vgpu")
            for i in range(2)
        ]
        made.put_slice(slice_(parts, name=f"{name}-parts", pool="spanning", count=3, nodeName=name))
    made.put_slice(counters(("g", {"slots": "5"}), name="sets", pool="spanning", count=3, allNodes=True))
    return made


def recomputed(held: dict[str, ResourceClaim]) -> dict[DeviceKey, tuple[Any, ...]]:
    """What must be in the ledger, from the claims' allocations and nothing else."""
    expected: dict[DeviceKey, list[Charge]] = {}
    for each in held.values():
        assert each.status.allocation is not None
        for charge in charges_of(each.status.allocation, shareable=True):
            expected.setdefault(charge.device, []).append(charge)
    return {key: totals(charges) for key, charges in expected.items()}


def totals(charges: list[Charge]) -> tuple[Any, ...]:
    consumed: dict[str, int] = {}
    for charge in charges:
        for name, amount in charge.consumed:
            consumed[name] = consumed.get(name, 0) + amount
    modes = [charge.mode for charge in charges]
    snapshots = sorted(charge.groups for charge in charges if charge.groups is not None)
    return modes.count("exclusive"), modes.count("share"), 0, tuple(sorted(consumed.items())), tuple(snapshots)


def derived(made: Devices) -> list[tuple[Any, ...]]:
    """What the contents keep beside the ledger: masks, counters and groups."""
    found = []
    for name in ("n1", "n2"):
        view = made.inventory.view(name)
        assert view is not None
        for content in view.contents:
            groups = tuple(sorted((number, state.key()) for number, state in content.groups.items()))
            found.append((content.key, content.taken, content.shared, content.allocated, tuple(content.available), groups))
    return found


def rebuilt(held: dict[str, ResourceClaim]) -> Devices:
    made = cluster()
    for each in held.values():
        made.put_claim(each)
    return made


def ask(made: Devices, pick: random.Random) -> ResourceClaim | None:
    kinds = [
        exactly(count=pick.randint(1, 2)),
        exactly(capacity={"requests": {"memory": str(pick.randint(1, 3))}}),
        exactly(select=["device.allowMultipleAllocations"], count=pick.randint(1, 2)),
        exactly(adminAccess=True),
        exactly(select=['!device.allowMultipleAllocations && device.driver == "gpu.example.com"'], count=3),
    ]
    wanted = claim(pick.choice(kinds))
    verdict = made.allocate(pick.choice(["n1", "n2"]), [wanted])
    if not verdict.ok:
        return None
    wanted.status.allocation = verdict.results[0]
    return wanted


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["hold", "hold", "show", "release", "slice", "unpublish"]), max_size=25))
def test_it_equals_a_recomputation_from_claims(seed: int, operations: list[str]) -> None:
    pick = random.Random(seed)
    made = cluster()
    held: dict[str, ResourceClaim] = {}
    for operation in operations:
        change(made, held, operation, pick)
        assert made.ledger.snapshot() == recomputed(held)
        fresh = rebuilt(held)
        assert derived(made) == derived(fresh)


def change(made: Devices, held: dict[str, ResourceClaim], operation: str, pick: random.Random) -> None:
    if operation == "hold":
        wanted = ask(made, pick)
        if wanted is not None and wanted.status.allocation is not None:
            made.hold(wanted, wanted.status.allocation)
            held[wanted.uid] = wanted
    elif operation in ("show", "release") and held:
        uid = pick.choice(sorted(held))
        if operation == "show":
            made.put_claim(held[uid])
        else:
            pick.choice([made.release, made.remove_claim])(uid)
            del held[uid]
    elif operation in ("slice", "unpublish"):
        # Published again, or gone for a moment: what is in use must not depend on it.
        raw = next(iter(cluster_slices(pick)))
        if operation == "unpublish":
            made.remove_slice(raw.metadata.name)
        made.put_slice(raw)


def cluster_slices(pick: random.Random) -> list[Any]:
    made = cluster()
    slices = [(pool, published) for pool in made.inventory.pools() for published in pool.slices.values()]
    _, published = pick.choice(slices)

    return [ResourceSlice(ObjectMeta(name=published.name), published.spec)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["hold", "show", "release"]), max_size=12), st.integers(0, 3))
def test_rollback_is_exact(seed: int, operations: list[str], nested: int) -> None:
    pick = random.Random(seed)
    made = cluster()
    held: dict[str, ResourceClaim] = {}
    for _ in range(3):
        change(made, held, "hold", pick)
    before = made.ledger.snapshot(), derived(made), {uid: made.ledger.entry(uid) for uid in held}
    with made.books.trial():
        inner = dict(held)
        for number, operation in enumerate(operations):
            if number % 4 == nested:
                with made.books.trial():
                    change(made, dict(inner), "release", pick)
            change(made, inner, operation, pick)
    assert (made.ledger.snapshot(), derived(made), {uid: made.ledger.entry(uid) for uid in held}) == before


def test_an_outer_trial_undoes_what_an_inner_one_kept() -> None:
    made = cluster()
    with made.books.trial():
        with made.books.trial() as inner:
            wanted = claim(exactly())
            made.hold(wanted, made.allocate("n1", [wanted]).results[0])
            inner.keep()
        assert made.ledger.snapshot()
    assert not made.ledger.snapshot()


def test_asking_changes_nothing() -> None:
    made = cluster()
    before = made.ledger.snapshot(), derived(made)
    for _ in range(3):
        made.allocate("n1", [claim(exactly(count=4)), claim(exactly(count=2))])
        made.explain("n1", [claim(exactly(count=30))])
    assert (made.ledger.snapshot(), derived(made)) == before
