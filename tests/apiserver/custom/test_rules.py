"""Validation rules in CEL: judged with the definition, asked of every object, within their cost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Cluster, Json
from tests.apiserver.custom.conftest import DEFINITIONS, OPEN, define, definition, fields, listed, number, text


def ruled(schema: Json, *rules: str | Json) -> Json:
    return schema | {"x-kubernetes-validations": [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]}


def test_a_rule_that_does_not_hold_refuses_with_its_message(cluster: Cluster) -> None:
    rule = {"rule": "self.min <= self.max", "message": "min must not exceed max"}
    widgets = define(cluster, definition(spec=ruled(fields(min=number(), max=number()), rule)))
    assert "spec: Invalid value: min must not exceed max" in widgets.refusal(spec={"min": 3, "max": 2})
    widgets.make(spec={"min": 1, "max": 2})


def test_without_a_message_the_rule_is_told(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(v=ruled(text(), "self.startsWith('a')"))))
    assert "spec.v: Invalid value: \"b\": failed rule: self.startsWith('a')" in widgets.refusal(spec={"v": "b"})


def test_message_reason_and_field_are_as_the_rule_says(cluster: Cluster) -> None:
    rule = {
        "rule": "self.n < 10",
        "messageExpression": "'too many for ' + self.name",
        "reason": "FieldValueForbidden",
        "fieldPath": ".n",
    }
    widgets = define(cluster, definition(spec=ruled(fields(n=number(), name=text(maxLength=9)), rule)))
    found = widgets.make(code=422, spec={"n": 11, "name": "me"})
    assert found["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": "Forbidden: too many for me", "field": "spec.n"}
    ]


def test_a_message_expression_that_fails_leaves_the_message(cluster: Cluster) -> None:
    rule = {"rule": "self.n < 10", "messageExpression": "'x' + self.text", "message": "too many"}
    widgets = define(cluster, definition(spec=ruled(fields(n=number(), text=text()), rule)))
    assert "too many" in widgets.refusal(spec={"n": 11})


def test_rules_see_elements_and_entries(cluster: Cluster) -> None:
    item = ruled(fields(name=text(maxLength=10)), "self.name != 'bad'")
    values = {"type": "object", "maxProperties": 5, "additionalProperties": ruled(number(), "self > 0")}
    widgets = define(cluster, definition(spec=fields(items=listed(item, maxItems=5), values=values)))
    told = widgets.refusal(spec={"items": [{"name": "ok"}, {"name": "bad"}], "values": {"a": 1, "b": 0}})
    assert "spec.items[1]: Invalid value" in told
    assert "spec.values[b]: Invalid value: 0" in told


def test_rules_at_the_root_see_name_and_kind(cluster: Cluster) -> None:
    schema = ruled(fields(spec=fields(name=text(maxLength=50))), "self.metadata.name == self.spec.name && self.kind == 'Widget'")
    widgets = define(cluster, definition(schema=schema))
    widgets.make("same", spec={"name": "same"})
    assert "failed rule" in widgets.refusal("other", spec={"name": "same"})


def test_transition_rules_compare_with_what_was_there(cluster: Cluster) -> None:
    spec = fields(fixed=ruled(text(), "self == oldSelf"), n=ruled(number(), "self >= oldSelf"))
    widgets = define(cluster, definition(spec=spec))
    widgets.make(spec={"fixed": "a", "n": 3})
    widgets.patch({"spec": {"n": 4}})
    assert "spec.fixed" in widgets.patch({"spec": {"fixed": "b"}}, code=422)["message"]
    assert "spec.n" in widgets.patch({"spec": {"n": 1}}, code=422)["message"]


def test_an_optional_old_value_is_asked_for_on_create_too(cluster: Cluster) -> None:
    rule = {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": True}
    widgets = define(cluster, definition(spec=fields(v=ruled(text(), rule))))
    assert "spec.v" in widgets.refusal(spec={"v": "second"})
    widgets.make(spec={"v": "first"})
    widgets.patch({"spec": {"v": "second"}})


def test_elements_with_keys_are_compared_with_themselves(cluster: Cluster) -> None:
    item = ruled(fields(k=text(), v=number()) | {"required": ["k"]}, "self.v >= oldSelf.v")
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    widgets = define(cluster, definition(spec=fields(l=listed(item, maxItems=9, **keys))))
    widgets.make(spec={"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]})
    widgets.patch({"spec": {"l": [{"k": "b", "v": 5}, {"k": "a", "v": 2}]}})
    assert "spec.l[0]" in widgets.patch({"spec": {"l": [{"k": "b", "v": 4}, {"k": "a", "v": 2}]}}, code=422)["message"]


def test_a_rule_is_not_asked_about_what_has_not_changed(cluster: Cluster) -> None:
    made = definition(spec=fields(a=text(), b=text()))
    widgets = define(cluster, made)
    widgets.make(spec={"a": "x", "b": "x"})
    properties = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["a"] = ruled(text(), "self == 'y'")
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": made["spec"]})
    widgets.patch({"spec": {"b": "z"}})
    assert "spec.a" in widgets.patch({"spec": {"a": "z"}}, code=422)["message"]


def test_rules_wait_until_the_object_has_the_right_shape(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=ruled(fields(n=number(), m=number()), "self.n < 1")))
    told = widgets.refusal(spec={"n": "text", "m": 1})
    assert "some validation rules were not checked because the object was invalid" in told


SEEN: list[tuple[Json, Any, str]] = [
    (text(format="date-time"), "2026-01-02T03:04:05Z", "self < timestamp('2027-01-01T00:00:00Z')"),
    (text(format="duration"), "90s", "self > duration('1m')"),
    (text(format="byte"), "aGk=", "self == b'hi'"),
    ({"x-kubernetes-int-or-string": True}, "25%", "type(self) == string ? self.endsWith('%') : self > 0"),
    ({"x-kubernetes-int-or-string": True}, 5, "type(self) == string ? self.endsWith('%') : self > 0"),
    ({"type": "number"}, 1, "self == 1.0"),
    (number(nullable=True), None, "true"),
    (fields(**{"my-field": number(), "namespace": number(), "a__b": number()}), {"my-field": 1, "namespace": 2, "a__b": 3},
     "self.my__dash__field + self.__namespace__ + self.a__underscores__b == 6"),
    (fields(namespace=number()), {"namespace": 2}, "self.namespace == self.__namespace__"),
    (fields(a=text()), {}, "!has(self.a) && self.?a.orValue('none') == 'none'"),
    (listed(text(), maxItems=9), ["a", "b"], "self.exists(x, x == 'b') && size(self) == 2 && self[0] == 'a'"),
    ({"type": "object", "maxProperties": 9, "additionalProperties": number()}, {"k": 1}, "'k' in self && self['k'] == 1"),
    (text(maxLength=20), "10.0.0.1", "isIP(self) && ip(self).family() == 4"),
    (text(maxLength=20), "500m", "quantity(self).isLessThan(quantity('1'))"),
    (text(maxLength=20), "a1", "self.matches('^[a-z][0-9]$')"),
    (OPEN | {"properties": {"a": number()}}, {"a": 1, "b": 2}, "self.a == 1"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "rule"), SEEN, ids=[rule[:40] for _, _, rule in SEEN])
def test_values_have_the_types_of_their_schema(cluster: Cluster, schema: Json, value: Any, rule: str) -> None:
    widgets = define(cluster, definition(spec=fields(v=ruled(schema, rule))))
    widgets.make(spec={"v": value})


FAILING: list[tuple[Json, Any, Any, str]] = [
    (number(), 3, "self < 2", "spec.v: Invalid value: 3: failed rule: self < 2"),
    (text(), "b", "self == 'a'", "spec.v: Invalid value: \"b\": failed rule: self == 'a'"),
    (fields(a=number()), {"a": 1}, "self.a == 2", "spec.v: Invalid value: failed rule: self.a == 2"),
    (listed(text(), maxItems=3), ["a"], {"rule": "size(self) == 2", "message": "two"}, "spec.v: Invalid value: two"),
    (fields(a=number()), {}, "self.a == 2", 'spec.v: Invalid value: "object": no such key: a evaluating rule: self.a == 2'),
    (listed(text(), maxItems=3), [], "self[0] == 'a'",
     "spec.v: Invalid value: \"array\": index out of bounds: 0 evaluating rule: self[0] == 'a'"),
    (number(), 0, {"rule": "1 / self > 0", "message": "some"},
     'spec.v: Invalid value: "integer": division by zero evaluating rule: some'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "rule", "told"), FAILING, ids=[told[8:60] for _, _, _, told in FAILING])
def test_what_fails_is_told_with_the_value_if_it_is_small(
    cluster: Cluster, schema: Json, value: Any, rule: Any, told: str
) -> None:
    widgets = define(cluster, definition(spec=fields(v=ruled(schema, rule))))
    assert widgets.refusal(spec={"v": value}).endswith(told)


REFUSED = {
    "a message of unknown length": (
        ruled(fields(n=number()), {"rule": "self.n < 10", "messageExpression": "'n is ' + string(self.n)"}),
        "messageExpression",
    ),
    "an unknown field": (ruled(fields(a=text()), "self.b == ''"), "undefined field 'b'"),
    "a wrong type": (ruled(fields(a=text()), "self.a == 1"), "no matching overload"),
    "no bool": (ruled(fields(a=text()), "self.a"), "must evaluate to a bool"),
    "what cannot be parsed": (ruled(fields(a=text()), "self.a =="), "compilation failed"),
    "a message that is none": (
        ruled(fields(a=text()), {"rule": "true", "messageExpression": "1"}),
        "messageExpression must evaluate to a string",
    ),
    "an unknown reason": (ruled(fields(a=text()), {"rule": "true", "reason": "Because"}), 'Unsupported value: "Because"'),
    "an empty rule": (ruled(fields(a=text()), " "), "rule is not specified"),
    "old elements that cannot be told apart": (
        fields(l=listed(ruled(text(), "self == oldSelf"), maxItems=5)),
        "oldSelf cannot be used on the uncorrelatable portion of the schema",
    ),
    "a rule that costs too much": (
        ruled(fields(l=listed(text())), "self.l.all(x, self.l.all(y, x == y))"),
        "estimated rule cost exceeds budget by factor of more than 100x",
    ),
    "rules that cost too much together": (  # no one of them does
        fields(
            **{f"f{n}": ruled(listed(text(maxLength=9000), maxItems=1000), "self.all(x, x.matches('^a*$'))") for n in range(150)}
        ),
        "total for entire OpenAPIv3 schema exceeds budget",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rule_that_cannot_work_is_refused_with_the_definition(cluster: Cluster, why: str) -> None:
    schema, told = REFUSED[why]
    message = cluster.post(DEFINITIONS, definition(spec=schema), code=422)["message"]
    assert told in message, message
    assert "spec.versions[0].schema.openAPIV3Schema" in message


def test_rules_spend_at_most_so_much_on_one_object(cluster: Cluster) -> None:
    """The estimate is bounded by what fits into a request; a hostile object is stopped while it is looked at."""
    many = listed(number(), maxItems=600)
    rule = "self.a.all(x, self.b.all(y, x != y))"
    widgets = define(cluster, definition(spec=ruled(fields(a=many, b=many), rule)))
    told = widgets.refusal(spec={"a": list(range(600)), "b": list(range(600, 1200))})
    assert "call cost exceeds limit" in told or "running out of cost budget" in told
    widgets.make(spec={"a": [1], "b": [2]})


SET = {"x-kubernetes-list-type": "set"}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
PAIR = fields(k=text(maxLength=5), n=number())
ONE, TWO = {"k": "a", "n": 1}, {"k": "b", "n": 2}
LISTS: list[tuple[Json, Any, str, bool]] = [
    (SET, (["x", "y"], ["y", "x"]), "self[0].l == self[1].l", True),
    (SET, (["x", "y"], ["x", "z"]), "self[0].l == self[1].l", False),
    (SET, (["x", "y"], ["x"]), "self[0].l == self[1].l", False),
    (SET, (["x", "y"], []), "self[0].l == ['y', 'x']", True),
    (SET, (["x", "y"], []), "['y', 'x'] == self[0].l", False),
    (SET, (["x", "y"], ["y", "z"]), "self[0].l + self[1].l == ['z', 'y', 'x'] && size(self[0].l + self[1].l) == 3", True),
    ({}, (["x", "y"], ["y", "x"]), "self[0].l == self[1].l", False),
    ({}, (["x", "y"], ["y", "z"]), "size(self[0].l + self[1].l) == 4", True),
    (KEYED, ([ONE, TWO], [TWO, ONE]), "self[0].l == self[1].l", True),
    (
        KEYED,
        ([ONE, TWO], [TWO, ONE | {"n": 2}]),
        "self[0].l == self[1].l",
        False,
    ),
    (KEYED, ([ONE, TWO], [TWO | {"n": 9}]), "(self[0].l + self[1].l)[1].n == 9", True),
    (
        SET,
        (["x", "y"], []),
        "self[0].l.all(v, v in ['x', 'y']) && self[0].l[0] == 'x' && self[0].l.map(v, v + '!') == ['x!', 'y!']",
        True,
    ),
]


def listing(extra: Json, rule: str) -> Json:
    """A definition of a kind with several lists of one type, and a rule about them."""
    items = PAIR | {"required": ["k"]} if extra is KEYED else text(maxLength=5)
    return definition(spec=fields(v=ruled(listed(fields(l=listed(items, maxItems=5, **extra)), maxItems=5), rule)))


def lists(*values: list[Any]) -> list[Json]:
    return [{"l": each} for each in values]


@pytest.mark.parametrize(("extra", "values", "rule", "holds"), LISTS)
def test_the_type_of_a_list_says_whether_its_order_counts(
    cluster: Cluster, extra: Json, values: tuple[list[Any], list[Any]], rule: str, holds: bool
) -> None:
    widgets = define(cluster, listing(extra, rule))
    made = widgets.make(code=201 if holds else 422, spec={"v": lists(*values)})
    assert holds or "failed rule" in made["message"]
