"""The parts that every step of scheduling works with, put together once."""

from __future__ import annotations

from collections.abc import Callable

from dray.api.class_names import ClassNames
from dray.api.gates import Gates
from dray.books.demand import Demands
from dray.books.journal import Books
from dray.books.nodes import Nodes
from dray.books.volumes import VolumeAccount
from dray.cluster.metrics import Meter
from dray.cluster.world import World
from dray.devices import Devices
from dray.numa.account import ZoneAccount
from dray.scheduling.binding.binder import Binder
from dray.scheduling.binding.claims import ClaimWriter
from dray.scheduling.binding.rests import Rests
from dray.scheduling.config import Config
from dray.scheduling.waiting.queue import Queue
from dray.scheduling.waiting.wakeups import Wakeups


class Parts:
    """What is known, what is taken, who waits and what is being written."""

    def __init__(self, world: World, config: Config, gates: Gates, meter: Meter, new_share: Callable[[], str] | None) -> None:
        self.world, self.config, self.gates, self.meter = world, config, gates, meter
        self.books = Books()
        self.engine = Devices(gates, new_share=new_share, budget=config.search_budget, books=self.books)
        self.nodes = Nodes(self.books)
        self.volumes = VolumeAccount(self.books)
        self.zones = ZoneAccount()
        self.nodes.followers.append(self.zones)
        self.wakeups = Wakeups(self.nodes, self.engine, self.volumes, self.zones)
        self.books.subscribe(self.wakeups.observe)
        self.demands = Demands()
        self.classes = ClassNames()
        self.queue = Queue(config.initial_backoff, config.max_backoff)
        self.rests = Rests(self.engine, config.device_rest)
        conditions = gates("DRADeviceBindingConditions")
        self.claims = ClaimWriter(world, self.engine, frozenset(config.by_name), stamps=conditions)
        self.binder = Binder(
            world, self.nodes, self.claims, self.volumes, self.rests, self.engine.inventory, meter, waits=conditions
        )
