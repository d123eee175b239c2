"""What bindings send and tell, until the scheduler takes it.

Always true: what is still here was seen by nobody, and may be taken back.
"""

from __future__ import annotations

from dray.api.events import event_body
from dray.api.kinds import EVENTS, PODS
from dray.cluster.port import Write
from dray.scheduling.binding.bindings import Binding, Ended
from dray.scheduling.binding.writing import pod_status


class Outbox:
    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._events: list[Write] = []
        # Bindings that are over.
        self.ended: list[Ended] = []

    def send(self, write: Write) -> None:
        self._writes.append(write)

    def unsend(self, binding: Binding) -> bool:
        """Its bind is taken back; False where that is sent already, or there is none."""
        left = [write for write in self._writes if write is not binding.writing]
        if len(left) == len(self._writes):
            return False
        self._writes, binding.writing = left, None
        return True

    def nominate(self, binding: Binding) -> None:
        """Others see where the pod goes while it waits: an autoscaler leaves that node alone."""
        if not binding.nominated and binding.stage != "binding" and binding.pod.status.nominated_node_name != binding.node:
            binding.nominated = True
            self.send(pod_status(binding.pod, {"nominatedNodeName": binding.node}))

    def tell(self, binding: Binding, now: float, reason: str, note: str, action: str) -> None:
        pod, controller = binding.pending.pod, binding.profile.scheduler_name
        body = event_body(PODS, pod, now=now, type="Normal", reason=reason, note=note, action=action, controller=controller)
        about = body["metadata"]
        self._events.append(Write("create", EVENTS, about["namespace"], about["name"], body, about=binding.key))

    # --------------------------------------------------------------------------------------------------------- taking

    def writes(self) -> list[Write]:
        out, self._writes = self._writes, []
        return out

    def events(self) -> list[Write]:
        """What people are told; less urgent than the writes."""
        out, self._events = self._events, []
        return out

    def take_ended(self) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended
