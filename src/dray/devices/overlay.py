"""The taint overlay: what DeviceTaintRules add to the taints that drivers publish.

Always true: with their gates off neither counts. Rules name devices whether or not a slice shows them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.gates import Gates
from dray.api.resource import DeviceTaint, DeviceTaintRule
from dray.api.tolerations import selects


class Overlay:
    def __init__(self, gates: Gates) -> None:
        self._rules_on = gates("DRADeviceTaintRules")
        self._taints_on = gates("DRADeviceTaints")
        self._rules: dict[str, DeviceTaintRule] = {}

    def put(self, rule: DeviceTaintRule) -> None:
        self._rules[rule.metadata.name] = rule

    def remove(self, name: str) -> DeviceTaintRule | None:
        return self._rules.pop(name, None)

    @property
    def empty(self) -> bool:
        """No rule: devices that are published alike have the same taints."""
        return not self._rules

    def rules_for(self, driver: str, pool: str, device: str) -> list[DeviceTaintRule]:
        """Those that select the device. A rule without a selector matches nothing."""
        return [rule for rule in self._rules.values() if selects(rule.spec.device_selector, driver, pool, device)]

    def taints(self, driver: str, pool: str, device: str, published: Iterable[DeviceTaint]) -> tuple[DeviceTaint, ...]:
        """The device's own taints, then those of matching rules."""
        own = tuple(published) if self._taints_on else ()
        if not self._rules or not self._rules_on:
            return own
        return (*own, *(rule.spec.taint for rule in self.rules_for(driver, pool, device)))
