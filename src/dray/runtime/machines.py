"""Simulated nodes as a process runs them: kubelets, faults of their devices, the fabric, and sockets for driver programs.

The sockets load grpcio, which takes long, and only where a node has a root directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.cluster.metrics import Meter
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.nodes.drivers import Simulated
from dray.nodes.fabric import Fabric
from dray.nodes.faults import DeviceFaults
from dray.nodes.heartbeats import SECONDS as HEARTBEAT_SECONDS
from dray.nodes.kubelet import Kubelets
from dray.nodes.plugins import DevicePlugins
from dray.nodes.publishing import PlacementPublisher, TopologyPublisher
from dray.nodes.zoned import NUMA, Disks, ZonedNodes, zoning
from dray.nodes.zones import ZoneAdmission

if TYPE_CHECKING:
    from dray.nodes.sockets import Sockets

# A path of a unix socket may have 107 bytes; drivers add names of their own to the root.
ROOT_MAX: Final = 60
SYSFS: Final = "sysfs"


class NoSockets(ValueError):
    """A node cannot have sockets: why, and what to do."""


def check_roots(roots: Mapping[str, Path], nodes: Iterable[str]) -> None:
    """Raises NoSockets where a root cannot work."""
    known = set(nodes)
    for node, root in roots.items():
        if node not in known:
            raise NoSockets(f"no simulated node is named {node!r}; known: {', '.join(sorted(known)[:8]) or 'none'}")
        if len(str(root)) > ROOT_MAX:
            raise NoSockets(f"{root} is too long for unix sockets: at most {ROOT_MAX} characters, for example /tmp/{node}")


class Machines:
    """``deciders`` first, then ``beside`` for the sockets of nodes in ``roots``."""

    kinds: tuple[Kind, ...] = tuple(
        dict.fromkeys((*Kubelets.kinds, *Fabric.kinds, *DeviceFaults.kinds, *TopologyPublisher.kinds))
    )

    def __init__(
        self,
        manifests: Sequence[dict[str, Any]],
        roots: Mapping[str, Path] | None = None,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        seed: int = 0,
    ) -> None:
        """``heartbeat`` 0 leaves leases alone; ``seed`` is of the delays with which zones are published."""
        self._manifests, self._roots = manifests, dict(roots or {})
        self._heartbeat, self._seed = heartbeat, seed
        self._disks = Disks()
        self._sockets: Sockets | None = None
        self._kubelets: Kubelets | None = None

    def deciders(self, world: World, meter: Meter | None = None) -> list[Decider]:
        zoned = ZonedNodes(world, self._disks)
        late = [TopologyPublisher(world, zoned, seed=self._seed), PlacementPublisher(world, zoned, seed=self._seed)]
        if not self._roots:
            return [self._kubelets_of(world, zoned, meter=meter), Fabric(world), DeviceFaults(world), *late]
        from dray.nodes.checkpoint import Files
        from dray.nodes.sockets import Sockets
        from dray.nodes.wiping import SliceWiping

        simulated = Simulated(world)
        sockets = self._sockets = Sockets(self._roots, simulated, simulated.publishes)
        checkpoint = Files(self._roots)
        kubelets = self._kubelets = self._kubelets_of(world, zoned, drivers=sockets, checkpoint=checkpoint, meter=meter)
        wiping = SliceWiping(world, self._roots, sockets.connected)

        def changed(node: str) -> None:
            kubelets.stir(node)
            wiping.stir(node)

        sockets.changed = changed
        return [kubelets, Fabric(world), DeviceFaults(world), wiping, *late]

    def _kubelets_of(self, world: World, zoned: ZonedNodes, **seams: Any) -> Kubelets:
        admission = ZoneAdmission(zoned, DevicePlugins(world))
        return Kubelets(world, self._manifests, heartbeat=self._heartbeat, admission=admission, **seams)

    async def beside(self, stir: Callable[[], None]) -> None:
        """Serve pod resources and look for drivers until cancelled."""
        from dray.nodes.podresources import PodResources, serve

        sockets, kubelets = self._sockets, self._kubelets
        assert sockets is not None
        assert kubelets is not None
        decide = sockets.changed

        def changed(node: str) -> None:
            decide(node)
            stir()

        sockets.changed = changed
        self._write_maps()
        async with contextlib.AsyncExitStack() as stack:
            for node, root in self._roots.items():
                server = await serve(root, PodResources(node, kubelets))
                stack.push_async_callback(server.stop, 0)
            await sockets.run()

    def _write_maps(self) -> None:
        """What a machine has below /sys/devices/system/node: which CPU is in which zone. Exporters read it."""
        for manifest in self._manifests:
            root = self._roots.get(manifest["metadata"]["name"])
            text = (manifest["metadata"].get("annotations") or {}).get(NUMA)
            if root is None or not text:
                continue
            for name, cpus in zoning(msgspec.json.decode(text)).made().cpu_lists().items():
                path = root / SYSFS / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(cpus)
