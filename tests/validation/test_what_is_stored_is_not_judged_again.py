"""Rules get stricter over time; what was accepted before can be kept as long as it is not touched."""

from __future__ import annotations

POLICY = {"default": "3", "validValues": ["1", "2"]}


def test_unchanged_capacity_is_kept(api, device):
    stored = device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": POLICY}})
    assert api.create("resourceslices", stored) == ["spec.devices[0].capacity[m].requestPolicy.validValues"]
    changed = device(allowMultipleAllocations=True, capacity={"m": {"value": "10", "requestPolicy": POLICY}}, taints=[])
    changed["spec"]["pool"]["generation"] = 2
    assert api.update("resourceslices", changed, stored) == []


def test_unchanged_taints_are_kept(api, device):
    stored = device(taints=[{"key": "a", "effect": "Unheard"}])
    assert api.create("resourceslices", stored) == ["spec.devices[0].taints[0].effect"]
    assert api.update("resourceslices", stored, stored) == []
    changed = device(taints=[{"key": "a", "effect": "Unheard", "value": "x"}])
    assert api.update("resourceslices", changed, stored) == ["spec.devices[0].taints[0].effect"]


def test_an_unknown_effect_of_a_rule_may_stay_but_not_come(api):
    def rule(effect, value="v"):
        return {"metadata": {"name": "r"}, "spec": {"taint": {"key": "a", "effect": effect, "value": value, "timeAdded": "t"}}}

    assert api.update("devicetaintrules", rule("Unheard", "w"), rule("Unheard")) == []
    assert api.update("devicetaintrules", rule("Other"), rule("NoSchedule")) == ["spec.taint.effect"]


def test_unchanged_expressions_of_a_class_are_kept(api):
    def device_class(expression, resource):
        selectors = [{"cel": {"expression": expression}}]
        return {"metadata": {"name": "c"}, "spec": {"selectors": selectors, "extendedResourceName": resource}}

    assert api.update("deviceclasses", device_class("1 +", "example.com/b"), device_class("1 +", "example.com/a")) == []
    found = api.update("deviceclasses", device_class("2 +", "example.com/a"), device_class("1 +", "example.com/a"))
    assert found == ["spec.selectors[0].cel.expression"]


def test_large_parameters_of_a_class_may_stay_but_not_come(api):
    def device_class(size, resource=None):
        config = [{"opaque": {"driver": "d.example.com", "parameters": {"a": "x" * size}}}]
        return {"metadata": {"name": "c"}, "spec": {"config": config, **({"extendedResourceName": resource} if resource else {})}}

    assert api.create("deviceclasses", device_class(10_240 - 8)) == []
    assert api.create("deviceclasses", device_class(10_240 - 7)) == ["spec.config[0].opaque.parameters"]
    assert api.update("deviceclasses", device_class(20_000, "example.com/a"), device_class(20_000)) == []
