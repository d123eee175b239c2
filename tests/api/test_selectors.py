"""Label, field and node selectors match as apimachinery's do."""

from __future__ import annotations

import pytest

from dray.api.core import LabelSelector, LabelSelectorRequirement, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.label_selectors import parse_label_selector
from dray.api.meta import ObjectMeta
from dray.api.selectors import (
    SelectorError,
    field_value,
    matches_all,
    node_name_selector,
    node_selector_matches,
    parse_field_selector,
    selects,
)

LABELS = {"app": "web", "tier": "front", "size": "5"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web, db)", True),
        ("app notin (web)", False),
        ("missing notin (web)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app=", False),
        ("app in (web),tier in (front,back),!missing", True),
        ("size>4,size<6", True),
        ("size > 5", False),
        ("missing>1", False),
        ("app in ()", False),
        ("app in (,web)", True),
        ("in notin (in)", True),
    ],
)
def test_label_selectors_match(selector: str, matches: bool) -> None:
    assert matches_all(parse_label_selector(selector), LABELS) is matches


@pytest.mark.parametrize("selector", ["app in", "app in (", "app in (a", ",", "app=web,,", "=x", "a b", "!", "a>>b"])
def test_label_selectors_that_cannot_be_parsed_are_refused(selector: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(selector)


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("l=1,", "found '', expected: identifier after ','"),
        ("!l=1", "found '=', expected: ',' or 'end of string'"),
        ("!!l", "unable to parse requirement: found '!', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("l in 1", "unable to parse requirement: found '1' expected: '('"),
        ("l in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("l>x", "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ("l=-", 'unable to parse requirement: values[0][l]: Invalid value: "-": a valid label must be an empty string'),
        ("l in (-,%)", 'unable to parse requirement: [values[0][l]: Invalid value: "%": a valid label'),
        ("x/y/z=1", 'unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key must consist of'),
        ("l=" + "a" * 64, "must be no more than 63 bytes"),
    ],
)
def test_what_is_wrong_with_a_label_selector_is_told_as_kubernetes_tells_it(selector: str, words: str) -> None:
    with pytest.raises(SelectorError) as refusal:
        parse_label_selector(selector)
    assert words in str(refusal.value)


@pytest.mark.parametrize("selector", [r"a=b\x", "a=b=c", "a=b\\"])
def test_field_selectors_with_bad_escapes_are_refused(selector: str) -> None:
    with pytest.raises(SelectorError, match="invalid field selector"):
        parse_field_selector(selector)


def test_no_label_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selects(None, LABELS)
    assert selects(LabelSelector(), LABELS)
    assert selects(LabelSelector({"app": "web"}, (LabelSelectorRequirement("size", "Exists"),)), LABELS)


def test_field_selectors_split_on_unescaped_commas() -> None:
    assert parse_field_selector(r"a=b,c!=d\,e,f==g") == (("a", "=", "b"), ("c", "!=", "d,e"), ("f", "=", "g"))
    with pytest.raises(SelectorError):
        parse_field_selector("justaname")


def test_field_values_are_texts() -> None:
    obj = {"spec": {"nodeName": "n1", "unschedulable": True, "count": 3}}
    assert [field_value(obj, path) for path in ("spec.nodeName", "spec.unschedulable", "spec.count", "spec.none.deeper")] == [
        "n1",
        "true",
        "3",
        "",
    ]


def _node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def test_node_selector_terms_are_alternatives_and_their_parts_are_not() -> None:
    in_zone = NodeSelectorRequirement("zone", "In", ("a",))
    big = NodeSelectorRequirement("cores", "Gt", ("32",))
    selector = NodeSelector(
        (
            NodeSelectorTerm((in_zone, big)),
            NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n9",)),)),
        )
    )
    assert node_selector_matches(selector, _node("n1", zone="a", cores="64"))
    assert not node_selector_matches(selector, _node("n1", zone="a", cores="16"))
    assert not node_selector_matches(selector, _node("n1", zone="a", cores="many"))
    assert node_selector_matches(selector, _node("n9"))


def test_empty_terms_match_no_node() -> None:
    assert not node_selector_matches(NodeSelector(), _node("n1"))
    assert not node_selector_matches(NodeSelector((NodeSelectorTerm(),)), _node("n1"))
    assert node_selector_matches(node_name_selector("n1"), _node("n1"))
