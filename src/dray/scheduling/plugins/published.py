"""What a node publishes of its zones as evidence of where its pods are, for those that no exporter reports.

Predictions go wrong, and who went astray leads those astray that are placed beside it. A topology object whose fingerprint names
exactly the pods that are there, all of them admitted, says what they have together; what each has mostly follows
(``dray.numa.deduce``). Always true: a topology object says nothing of a pod that was not seen on the node before it was, so
that a pod with the name of another is not taken for it; what was observed is never doubted for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.api.topology import NodeResourceTopology
from dray.numa.account import Held, Sure
from dray.numa.deduce import Resident, deduced
from dray.numa.fingerprint import counts_exactly
from dray.numa.layout import published_state
from dray.scheduling.parts import Parts

if TYPE_CHECKING:
    from dray.scheduling.plugins.zones import Zones


class Evidence:
    def __init__(self, zones: Zones, parts: Parts) -> None:
        self._zones, self._account, self._nodes = zones, parts.zones, parts.nodes
        self._books, self._wakeups = parts.books, parts.wakeups
        # By node what was published last, with the pods that were there when it was seen (None: not looked yet).
        self._last: dict[str, tuple[NodeResourceTopology, frozenset[str] | None]] = {}
        self.stirred: dict[str, None] = {}
        """Nodes of which something is to be looked at again."""

    def published(self, name: str, topology: NodeResourceTopology | None) -> None:
        if topology is None:
            self._last.pop(name, None)
        else:
            self._last[name] = (topology, None)
            self.stirred[name] = None

    def stir(self, name: str) -> None:
        """Pods of the node have changed."""
        if name in self._last:
            self.stirred[name] = None

    def weigh(self) -> None:
        """Whatever follows from what was published since."""
        stirred, self.stirred = self.stirred, {}
        for name in stirred:
            if name in self._last and self._weigh(name):
                del self._last[name]

    def _weigh(self, name: str) -> bool:
        """Whether the evidence has been used."""
        topology, there = self._last[name]
        info, layout = self._nodes.get(name), self._zones.layout(name)
        if info is None or layout is None:
            return False
        shown = {uid: placed.pod for uid, placed in info.pods.items() if placed.standing == "shown"}
        if there is None:
            there = frozenset(shown)
            self._last[name] = (topology, there)
        if not shown.keys() <= there or any(pod.status.start_time is None for pod in shown.values()):
            return False
        if counts_exactly(topology, shown.values()) != "same":
            return False
        held = {uid: each for uid, each in self._account.on(name).items() if uid in shown}
        known = [each.usage for each in held.values() if each.sure == "observed"]
        others = {uid: each for uid, each in held.items() if each.sure != "observed"}
        residents = {uid: Resident(each.asked, each.usage) for uid, each in others.items()}
        for uid, found in deduced(published_state(layout, topology), known, residents).items() if residents else ():
            before = others[uid]
            sure: Sure = "deduced" if found.apart else "admitted"
            record = before.record if found.usage == before.usage else ""
            after = Held(name, found.usage, before.asked, sure, record, before.recorded)
            if after != before:
                self._books.post(self._account, uid, after)
                # Nobody has left: who was admitted is known now, and who comes may find other zones than was thought.
                self._wakeups.zones_vacated[name] = True
        return True
