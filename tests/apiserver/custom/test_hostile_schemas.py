"""Whatever a definition says and whatever an object holds: an answer, never a failure, and at a bounded cost."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.apiserver.custom import validation
from dray.apiserver.custom.shaping import shaped
from dray.apiserver.custom.structure import ABSENT, Node
from tests.apiserver.conftest import Cluster, Json
from tests.apiserver.custom.conftest import DEFINITIONS, Kind, define, definition, fields, listed, number, text

FEW = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=3)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)

KEYWORDS = (
    "type", "properties", "items", "additionalProperties", "required", "default", "enum", "pattern", "minLength", "maximum",
    "anyOf", "oneOf", "allOf", "not", "nullable", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource",
    "x-kubernetes-validations", "x-kubernetes-map-type", "$ref", "uniqueItems",
)  # fmt: skip
GARBAGE = st.recursive(
    SCALARS | st.sampled_from(["object", "array", "string", "map", "set", "self.a == self", "("]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYWORDS) | NAMES, inner, max_size=4),
    max_leaves=15,
)


def structural(depth: int = 3) -> st.SearchStrategy[Json]:
    leaf = st.sampled_from(
        [
            text(),
            text(default="a"),
            number(minimum=0),
            {"type": "boolean"},
            {"type": "number", "nullable": True},
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-preserve-unknown-fields": True},
            text(enum=["a", "b"]),
        ]
    )
    if depth == 0:
        return leaf
    inner = structural(depth - 1)
    return (
        leaf
        | st.builds(listed, inner)
        | st.builds(lambda each: {"type": "object", "additionalProperties": each}, inner)
        | st.builds(
            lambda each, needed: {"type": "object", "properties": each, "required": sorted(needed & each.keys())},
            st.dictionaries(NAMES, inner, max_size=3),
            st.sets(NAMES, max_size=2),
        )
    )


@FEW
@given(schema=GARBAGE, value=VALUES)
def test_any_schema_gets_an_answer(schema: Any, value: Any) -> None:
    cluster = Cluster()
    made = definition(spec=schema if isinstance(schema, dict) else {"type": schema})
    answer: Any = cluster.ask("POST", DEFINITIONS, made)
    assert answer.code in (201, 400, 422), answer.body
    if answer.code == 201:
        kind = Kind(cluster, made)
        done: Any = cluster.ask("POST", kind.path, kind.object(spec=value))
        assert done.code in (201, 422), done.body


@FEW
@given(schema=structural(), value=VALUES, other=VALUES)
def test_objects_of_any_structural_schema_are_stored_or_refused(schema: Json, value: Any, other: Any) -> None:
    cluster = Cluster()
    kind = define(cluster, definition(spec=fields(v=schema)))
    first: Any = cluster.ask("POST", kind.path, kind.object(spec={"v": value}))
    assert first.code in (201, 422), first.body
    again: Any = cluster.ask(
        "PATCH",
        f"{kind.path}/w?fieldManager=me&force=true",
        kind.object(spec={"v": other}),
        content_type="application/apply-patch+yaml",
    )
    assert again.code in (200, 201, 400, 422), again.body


@FEW
@given(schema=structural(), value=VALUES)
def test_shaping_twice_changes_nothing_more(schema: Json, value: Any) -> None:
    node = Node(fields(v=schema))
    unknown: list[str] = []
    once = shaped({"v": value}, node, "", unknown, fill=True)
    again: list[str] = []
    assert shaped(once, node, "", again, fill=True) == once
    assert again == []


@FEW
@given(schema=structural(), value=VALUES)
def test_what_is_left_is_just_what_the_schema_names(schema: Json, value: Any) -> None:
    """Against the rule written down once more, as simply as possible."""
    unknown: list[str] = []
    left = shaped({"v": value}, Node(fields(v=schema)), "", unknown, fill=False)
    assert left == {"v": pruned(value, schema)}
    assert bool(unknown) == (left != {"v": value})


def pruned(value: Any, schema: Json | None) -> Any:
    if schema is not None and schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return value
    if isinstance(value, list):
        items = (schema or {}).get("items")
        return [pruned(each, items) for each in value]
    if not isinstance(value, dict):
        return value
    known = (schema or {}).get("properties") or {}
    extra = (schema or {}).get("additionalProperties")
    return {k: pruned(v, known.get(k, extra)) for k, v in value.items() if k in known or extra is not None}


def test_many_alternatives_for_many_values_end_with_a_reason() -> None:
    """Each value is looked at once for each alternative: a request has room for enough of both to take minutes."""
    schema = listed(number(anyOf=[*({"minimum": n} for n in range(10, 510)), {"maximum": 0}]))
    found = validation.problems(Node(fields(v=schema)), {"v": list(range(-1200, 0))}, None)
    assert ["takes more than" in each.detail for each in found] == [True]


def test_a_pattern_takes_no_more_than_linear_time(cluster: Cluster) -> None:
    kind = define(cluster, definition(spec=fields(v=text(pattern="^(a+)+$"))))
    assert "should match" in kind.refusal(spec={"v": "a" * 5000 + "!"})


def test_a_schema_of_too_many_places_is_refused(cluster: Cluster) -> None:
    wide = fields(**{f"f{n}": fields(**{f"g{m}": text() for m in range(260)}) for n in range(200)})
    assert "the schema has more than" in cluster.post(DEFINITIONS, definition(spec=wide), code=422)["message"]


def test_a_deep_object_is_refused_before_it_is_looked_at(cluster: Cluster) -> None:
    kind = define(cluster, definition(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    deep: Any = "x"
    for _ in range(300):
        deep = {"a": deep}
    kind.make(spec=deep, code=400)


def test_absence_is_not_null() -> None:
    assert Node(text()).default is ABSENT
    assert Node(text(default=None)).default is None
