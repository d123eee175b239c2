"""`dray demo`: an example cluster, example workloads, and what happens, as it happens."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.markup import escape

from dray import examples
from dray.api.core import Pod
from dray.api.kinds import EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.cli.manifests import read_manifests
from dray.cli.output import console, table
from dray.cli.running import to_the_end
from dray.cli.why import show
from dray.cluster.port import Change, Event, Write
from dray.cluster.world import World
from dray.explain.failures import failed_bindings
from dray.explain.why import why as ask
from dray.runtime import logs

HARDWARE: Final = ("gpu8:2", "mig:1", "nic:1", "fabric:2")
SETTLED_SECONDS: Final = 0.7
# A refusal that passes sooner than this (a claim that is just being generated) is not worth telling.
LASTING_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 60.0


@click.command()
@click.option("--once", is_flag=True, help="Exit when the workloads have settled, instead of staying up for kubectl.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the kubeconfig here.  [default: a temporary file]",
)
def demo(once: bool, kubeconfig: Path | None) -> None:
    """Start an example cluster, run example workloads and show what happens.

    Everything runs in this process, and nothing is kept. Exit code 1 when the workloads do not settle.

    \b
    Examples:
      dray demo                 stay up afterwards, to try kubectl and dray
      dray demo --once          exit when the workloads have settled
    """
    logs.configure(level="warning")
    if kubeconfig is not None:
        to_the_end(lambda: _Demo(once, kubeconfig).run())
        return
    with tempfile.TemporaryDirectory(prefix="dray-demo-") as directory:
        to_the_end(lambda: _Demo(once, Path(directory) / "kubeconfig").run())


class _Demo:
    def __init__(self, once: bool, kubeconfig: Path) -> None:
        from dray.nodes.hardware import hardware
        from dray.runtime.local import Local, Settings

        self._once, self._kubeconfig = once, kubeconfig
        machines = hardware(HARDWARE)
        self._objects, self._nodes = machines.objects, machines.nodes
        self._console = console()
        self.local = Local(Settings(nodes=tuple(machines.nodes)), watching=self._narrator)
        self._narration: Narrator | None = None

    def _narrator(self, world: World) -> Narrator:
        self._narration = Narrator(world, self._say)
        return self._narration

    def _say(self, at: str, text: str) -> None:
        self._console.print(f"[dim]{at}[/dim]  {text}")

    async def run(self) -> None:
        from dray.runtime.process import stop_on_signals

        stop, ready = stop_on_signals(), asyncio.Event()
        self._console.print("[bold]A Kubernetes cluster in this process[/bold], with simulated hardware:\n")
        await self.local.start()
        running = asyncio.create_task(self.local.run(stop, ready))
        self.local.server.write_kubeconfig(self._kubeconfig)
        await ready.wait()
        await self.local.apply(self._objects)
        settled = await self._workloads(stop)
        ended_by_user = stop.is_set()
        if settled:
            await self._summary()
        if not self._once and not stop.is_set():
            self._next_steps()
            await stop.wait()
        stop.set()
        await running
        if not settled and not ended_by_user:
            raise click.ClickException(
                "the example workloads did not settle; run `dray demo` without --once to inspect the cluster"
            )

    async def _workloads(self, stop: asyncio.Event) -> bool:
        """Apply the examples one after another, each when the one before has settled."""
        if not await self._until(self._machines_are_up, stop):
            return False
        self._console.print(_machines(self.world))
        for file in examples.files():
            self._console.print(f"\n[bold]{file.name}[/bold]  [dim]{_comment(file)}[/dim]")
            applied = time.monotonic()
            await self.local.apply(read_manifests([file]))
            if not await self._until(partial(self._settled_since, applied), stop):
                return False
        return True

    async def _until(self, holds: Callable[[], bool], stop: asyncio.Event) -> bool:
        """Wait for it; False when that takes too long or the user ends the demo."""
        until = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < until and not stop.is_set():
            if holds():
                return True
            await asyncio.sleep(0.1)
        return False

    def _machines_are_up(self) -> bool:
        slices = sum(found["kind"] == RESOURCE_SLICES.kind for found in self._objects)
        return len(self.world.all(NODES)) == len(self._nodes) and len(self.world.all(RESOURCE_SLICES)) == slices

    def _settled_since(self, applied: float) -> bool:
        """Something happened, then nothing for a while, and every pod has a verdict."""
        assert self._narration is not None
        last = self._narration.last
        return last > applied and time.monotonic() - last > SETTLED_SECONDS and self._narration.settled()

    @property
    def world(self) -> World:
        assert self._narration is not None
        return self._narration.world

    async def _summary(self) -> None:
        events, _ = await self.local.port.list(EVENTS)
        failures = failed_bindings(msgspec.json.decode(event) for event in events)
        pods = sorted(self.world.all(PODS).values(), key=lambda pod: pod.key)
        self._console.print("\n[bold]Result[/bold]\n")
        self._console.print(table(("pod", "node", "state", "devices"), [_row(self.world, pod) for pod in pods]))
        for pod in filter(_refusal, pods):
            self._console.print(f"\n[bold]Why is {pod.metadata.name} pending?[/bold]  [dim]dray why {pod.metadata.name}[/dim]\n")
            show(ask(self.world, pod, now=time.time(), failures=failures), self._console, wide=False)

    def _next_steps(self) -> None:
        kubeconfig = self._kubeconfig
        self._console.print(
            f"\n[bold]The cluster stays up until Ctrl-C.[/bold] In another terminal:\n\n"
            f"{_path()}"
            f"  export KUBECONFIG={kubeconfig}\n"
            f"  kubectl get pods,resourceclaims -o wide\n"
            f"  dray why too-much          # why is it pending, and what would help?\n"
            f"  dray devices               # which devices are free, which are in use?\n"
            f"  kubectl delete pod train   # frees its GPUs\n"
            f"  kubectl scale deployment inference --replicas=20\n"
            f"  dray verify                # is anything allocated twice?\n\n"
            f"Example manifests: {Path(examples.__file__).parent}\n",
            soft_wrap=True,  # commands are copied: the terminal may fold them, not we
        )


class Narrator:
    """A decider that decides nothing: it tells what it sees."""

    name = "narrator"
    kinds: Sequence[Kind] = (PODS, RESOURCE_CLAIMS, NODES, RESOURCE_SLICES)

    def __init__(self, world: World, say: Any) -> None:
        self.world, self._say = world, say
        self._began = self.last = time.monotonic()
        self._refused: dict[str, float] = {}  # pods whose refusal is not told yet: when to tell it

    def observe(self, event: Event, now: float) -> None:
        if not isinstance(event, Change) or event.kind in (NODES, RESOURCE_SLICES):
            return
        if event.kind == PODS:
            self._doubt(event, now)
        self._tell(_pod_news(event) if event.kind == PODS else _claim_news(event))

    def act(self, now: float) -> list[Write]:
        for key in [key for key, due in self._refused.items() if due <= now]:
            del self._refused[key]
            pod = self.world.get(PODS, key)
            if isinstance(pod, Pod) and _refusal(pod):
                self._tell(f"pod [cyan]{pod.metadata.name}[/cyan] [yellow]is pending[/yellow]: {escape(_refusal(pod))}")
        return []

    def wake(self) -> float | None:
        return min(self._refused.values(), default=None)

    def settled(self) -> bool:
        """Every pod runs, or has been told why it does not."""
        pods = self.world.all(PODS).values()
        told = not self._refused and bool(pods)
        return told and all(pod.terminal or pod.status.phase == "Running" or _refusal(pod) for pod in pods)

    def _doubt(self, change: Change, now: float) -> None:
        pod, before = change.new, change.old
        if not isinstance(pod, Pod) or not _refusal(pod):
            self._refused.pop(change.object.key, None)
        elif not isinstance(before, Pod) or _refusal(pod) != _refusal(before):
            self._refused[pod.key] = now + LASTING_SECONDS

    def _tell(self, text: str) -> None:
        if text:
            self.last = time.monotonic()
            self._say(f"{self.last - self._began:5.1f}s", text)


def _pod_news(change: Change) -> str:
    old, new = change.old, change.new
    assert isinstance(change.object, Pod)
    name = change.object.metadata.name
    if not isinstance(new, Pod):
        return f"pod {name} is deleted"
    before = old if isinstance(old, Pod) else Pod()
    if new.spec.node_name and not before.spec.node_name:
        return f"pod [cyan]{name}[/cyan] is bound to [green]{new.spec.node_name}[/green]"
    if new.status.phase != before.status.phase and new.status.phase in ("Running", "Succeeded", "Failed"):
        return f"pod [cyan]{name}[/cyan] is {new.status.phase.lower()}"
    if new.status.nominated_node_name and not before.status.nominated_node_name:
        return f"pod [cyan]{name}[/cyan] is waiting for its devices to be attached to {new.status.nominated_node_name}"
    return ""


def _claim_news(change: Change) -> str:
    old, new = change.old, change.new
    if not isinstance(new, ResourceClaim):
        return ""
    before = old.status.allocation if isinstance(old, ResourceClaim) else None
    if new.status.allocation is not None and before is None:
        return f"claim [cyan]{new.metadata.name}[/cyan] gets [green]{_devices(new)}[/green]"
    if new.status.allocation is None and before is not None:
        return f"claim [cyan]{new.metadata.name}[/cyan] is deallocated"
    return ""


def _devices(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    parts = []
    for result in allocation.devices.results:
        share = ", ".join(f"{amount} {name}" for name, amount in (result.consumed_capacity or {}).items())
        parts.append(f"{result.pool}/{result.device}" + (f" ({share})" if share else ""))
    return ", ".join(parts)


def _refusal(pod: Pod) -> str:
    scheduled = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    return scheduled.message if scheduled is not None and scheduled.status == "False" else ""


def _row(world: World, pod: Pod) -> tuple[str, str, str, str]:
    names = [status.resource_claim_name or "" for status in pod.status.resource_claim_statuses]
    names += [entry.resource_claim_name or "" for entry in pod.spec.resource_claims]
    if pod.status.extended_resource_claim_status is not None:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    claims = [world.get(RESOURCE_CLAIMS, f"{pod.metadata.namespace}/{name}") for name in names if name]
    devices = ", ".join(_devices(claim) for claim in claims if claim is not None and claim.status.allocation is not None)
    return pod.metadata.name, pod.spec.node_name or "-", pod.status.phase, devices or "-"


def _machines(world: World) -> Any:
    devices: dict[str, int] = {}
    for found in world.all(RESOURCE_SLICES).values():
        assert isinstance(found, ResourceSlice)
        place = found.spec.node_name or f"pool {found.spec.pool.name}"
        devices[place] = devices.get(place, 0) + len(found.spec.devices)
    rows = [(name, str(devices.get(name, 0))) for name in sorted(world.all(NODES))]
    rows += [(place, str(count)) for place, count in sorted(devices.items()) if place.startswith("pool ")]
    return table(("node", "devices"), rows)


def _path() -> str:
    """How to find `dray` where it is not on the PATH, as after `run.py demo`."""
    return "" if shutil.which("dray") else f"  export PATH={Path(sys.executable).parent}:$PATH\n"


def _comment(file: Path) -> str:
    """What the example says of itself: the comment on top."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)
