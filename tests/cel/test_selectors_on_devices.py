"""A selector's verdict, its error and its worst-case cost are those of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.cel import STORED, CompileError, CostLimitExceeded, DeviceView, EvaluationError, compile

DRIVER = "gpu.vendor.example"
DEVICE = Device(
    attributes={
        "healthy": DeviceAttribute(bool_=True),
        "slot": DeviceAttribute(int_=4),
        "model": DeviceAttribute(string="LX-90"),
        "firmware": DeviceAttribute(version="7.1.0"),
        "lanes": DeviceAttribute(ints=(8, 16)),
        "links": DeviceAttribute(strings=("nv", "pcie")),
        "flags": DeviceAttribute(bools=(True, False)),
        "builds": DeviceAttribute(versions=("1.0.0", "1.1.0-rc.2")),
        "rack.example/row": DeviceAttribute(string="r7"),
    },
    capacity={"memory": DeviceCapacity(value="80Gi"), "rack.example/power": DeviceCapacity(value="450")},
)
VIEW = DeviceView.of(DRIVER, DEVICE)
OWN = f'device.attributes["{DRIVER}"]'
SIZE = f'device.capacity["{DRIVER}"]'
LIST_COST = 64  # the most that an attribute can hold

VERDICTS: list[tuple[str, bool, int]] = [
    ("true", True, 0),
    ("false", False, 0),
    ('"nowhere.example" in device.attributes', False, 3),
    ('"rack.example" in device.attributes', True, 3),
    ('"row" in device.attributes["nowhere.example"]', False, 4),
    ('device.driver == ""', False, 2),
    ('device.driver == "gpu.vendor.example"', True, 4),
    (f"{OWN}.healthy", True, 4),
    (f'{OWN}["healthy"]', True, 4),
    (f"cel.bind(own, {OWN}, own.healthy)", True, 15),
    ('device.attributes["rack.example"].row == "r7"', True, 5),
    (f"{OWN}.slot > 3", True, 5),
    (f'{OWN}.model == "LX-80"', False, 5),
    (f"{OWN}.lanes.size() == 2", True, 6),
    (f"{OWN}.builds.size() == 2", True, 6),
    (f"{OWN}.lanes.exists(n, n > 8)", True, 5 + 6 * LIST_COST),
    (f'{OWN}.links.all(l, l != "")', True, 5 + 4 * LIST_COST),
    (f'{OWN}.builds.all(b, b.isGreaterThan(semver("0.9.0")))', True, 5 + 6 * LIST_COST),
    (f'{OWN}.links.includes("nv")', True, 4 + LIST_COST),
    (f'{OWN}.model.includes("LX-90")', True, 4 + LIST_COST),
    (f"{OWN}.flags.includes(3)", False, 4 + LIST_COST),
    (f'{OWN}.builds.includes(semver("1.0.0"))', True, 5 + LIST_COST),
    (f"16 in {OWN}.lanes", True, 4 + LIST_COST),
    (f'{OWN}.firmware.isGreaterThan(semver("7.0.9"))', True, 6),
    (f'{OWN}.firmware.isGreaterThan(semver("v7", true)) && isSemver("1.2.3")', True, 7),
    (f'{SIZE}.memory.isGreaterThan(quantity("40Gi"))', True, 6),
    (f'"memory" in {SIZE} && {SIZE}.memory.isGreaterThan(quantity("1Ti"))', False, 10),
    (f'!("cores" in {SIZE}) || {SIZE}.cores.isGreaterThan(quantity("1"))', True, 11),
    (f'device.attributes.exists_one(d, d == "{DRIVER}")', True, 164),
    (f'{OWN}.exists_one(id, id == "slot")', True, 133),
    ('device.capacity.exists_one(d, d == "rack.example")', True, 164),
    (f'{OWN}.model.split("-").size() == 2', True, 19),
    (f'{OWN}.model.matches("^LX-[0-9]+$")', True, 25),
    ("device.allowMultipleAllocations == false", True, 3),
]


@pytest.mark.parametrize(("expression", "verdict", "cost"), VERDICTS)
def test_verdict_and_worst_case_cost(expression: str, verdict: bool, cost: int) -> None:
    program = compile(expression)
    assert program.matches(VIEW) is verdict
    assert program.estimated_cost == cost


ERRORS = [
    ('device.attributes["nowhere.example"].size.isGreaterThan(quantity("0"))', "no such key: size"),
    (f'{OWN}["cores"] > 3', "no such key: cores"),
    (f"{OWN}.links", "CEL result of type list could not be converted to bool"),
    (f"{OWN}.slot", "CEL result of type int could not be converted to bool"),
    (f"{OWN}.slot.exists(x, x > 0)", "got 'types.Int', expected iterable type"),
    (f"{OWN}.model.exists(x, x > 0)", "got 'types.String', expected iterable type"),
    (f'{OWN}.model.isGreaterThan(semver("1.0.0"))', "no such overload"),
    (f'{OWN}.slot > "three"', "no such overload"),
    (f"{OWN}.slot + 9223372036854775807 > 0", "integer overflow"),
    (f"{OWN}.slot / 0 > 0", "division by zero"),
    (f"{OWN}.lanes[2] > 0", "index out of bounds: 2"),
]


@pytest.mark.parametrize(("expression", "message"), ERRORS)
def test_an_error_is_never_a_verdict(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message.replace("[", r"\[").replace("(", r"\(")):
        compile(expression).matches(VIEW)


def test_a_missing_attribute_is_reported_with_place_expression_and_what_to_do() -> None:
    expression = f'device.driver == "{DRIVER}" &&\n  {OWN}.cores > 1'
    with pytest.raises(EvaluationError) as caught:
        compile(expression).matches(VIEW)
    error = caught.value
    assert error.expression == expression
    assert (error.line, error.column) == (2, 42)
    assert expression[error.position :].startswith(".cores")
    assert "no such key: cores" in str(error)
    assert "optional chaining" in str(error)


UNKNOWN_DOMAIN: list[tuple[str, bool]] = [
    ('has(device.attributes["nowhere"].x)', False),
    ('device.attributes["nowhere"].size() == 0', True),
    ('device.attributes["nowhere"].?x.orValue(true)', True),
    ('device.attributes[?"nowhere"].hasValue()', True),
    ('device.attributes.exists(d, d == "nowhere")', False),
    ('device.capacity["nowhere"].size() == 0', True),
]


@pytest.mark.parametrize(("expression", "verdict"), UNKNOWN_DOMAIN)
def test_an_unknown_domain_reads_as_an_empty_map_but_is_not_there(expression: str, verdict: bool) -> None:
    assert compile(expression).matches(VIEW) is verdict


def test_every_evaluation_fails_on_a_device_with_a_value_of_an_unknown_kind() -> None:
    device = Device(attributes={"fine": DeviceAttribute(bool_=True), "future": DeviceAttribute()})
    view = DeviceView.of(DRIVER, device)
    with pytest.raises(EvaluationError, match="attribute future: unsupported attribute value"):
        compile("true").matches(view)


def test_a_version_that_is_not_one_fails_every_evaluation() -> None:
    view = DeviceView.of(DRIVER, Device(attributes={"firmware": DeviceAttribute(version="seven")}))
    with pytest.raises(EvaluationError, match="attribute firmware: parse semantic version"):
        compile("true").matches(view)


GATED: list[tuple[str, frozenset[str], str]] = [
    ("device.allowMultipleAllocations", frozenset(), "undefined field 'allowMultipleAllocations'"),
    (f'{OWN}.links.includes("nv")', frozenset({"DRAConsumableCapacity"}), "undeclared reference to 'includes'"),
    (f"{OWN}.lanes.exists(n, n > 8)", frozenset(), "cannot be range of a comprehension"),
]


@pytest.mark.parametrize(("expression", "features", "message"), GATED)
def test_new_expressions_need_the_gate_and_stored_ones_do_not(expression: str, features: frozenset[str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(expression, features=features)
    compile(expression, features=STORED)


def test_gates_that_do_not_concern_expressions_are_ignored() -> None:
    assert compile("true", features=frozenset({"DRADeviceTaints"})) is compile("true", features=frozenset())


def test_too_much_cost_stops_an_evaluation_and_nothing_absorbs_it() -> None:
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    inner = "a + b + c + d + e + f >= 0"
    for name in "fedcba":
        inner = f"{ten}.all({name}, {inner})"
    program = compile(f"{inner} || true", limit=20_000)
    assert program.estimated_cost > 20_000
    with pytest.raises(CostLimitExceeded, match="actual cost limit exceeded"):
        program.matches(VIEW)


# Both sides of ==, and whether that is an error: versions, quantities and the like know only their own kind.
EQUALITY: list[tuple[str, str, bool]] = [
    (f"{OWN}.firmware", '"7.1.0"', True),
    ('"7.1.0"', f"{OWN}.firmware", False),
    (f"{OWN}.firmware", f"{OWN}.model", True),
    (f"{OWN}.model", f"{OWN}.firmware", False),
    (f"{OWN}.firmware", "true", True),
    (f"{OWN}.firmware", "null", False),
    (f"{OWN}.builds[0]", "dyn(1)", True),
    (f"dyn({SIZE}.memory)", '"80Gi"', True),
    ('dyn("80Gi")', f"{SIZE}.memory", False),
    ('dyn(ip("10.0.0.1"))', '"10.0.0.1"', True),
    ('dyn(url("https://a/b"))', '"https://a/b"', True),
    (f"{OWN}.?firmware", 'optional.of("7.1.0")', True),
    (f"{OWN}.slot", '"4"', False),
]


@pytest.mark.parametrize("metered", [False, True])
@pytest.mark.parametrize(("left", "right", "error"), EQUALITY)
def test_a_version_on_the_left_cannot_be_compared_with_another_type(left: str, right: str, error: bool, metered: bool) -> None:
    costly = ' || "aa".replace("a", "bb").contains("c")' if metered else ""
    equal = compile(f"{left} == {right}{costly}")
    assert equal.metered == (metered or "optional" in right)
    if error:
        with pytest.raises(EvaluationError, match="no such overload"):
            equal.matches(VIEW)
    else:
        assert not equal.matches(VIEW)
    assert compile(f"{left} != {right}{costly}").matches(VIEW)


def test_a_version_in_a_list_of_other_types_is_not_found_and_no_error() -> None:
    assert not compile(f'{OWN}.firmware in [dyn("7.1.0"), {OWN}.model]').matches(VIEW)
    assert not compile(f'{OWN}.firmware.includes("7.1.0")').matches(VIEW)


@pytest.mark.parametrize(
    "expression",
    [
        f"{OWN}.lanes.distinct().exists(n, -n < 0)",
        f"{OWN}.lanes.reverse().all(n, n <= n && !(n < n) && n >= n)",
        f"{OWN}.links.distinct().exists(l, l.size() == 2 && size(l) == 2)",
        f"{OWN}.links.slice(0, 2).all(l, l >= l && !(l < l))",
        f"{OWN}.flags.reverse().exists(f, !f)",
    ],
)
def test_operators_on_elements_of_an_attribute_go_by_the_values(expression: str) -> None:
    assert compile(expression).matches(VIEW)


@pytest.mark.parametrize(("expression", "verdict"), [(f"{OWN}.flags[?0]", True), ("dyn(optional.of(optional.of(false)))", False)])
def test_a_verdict_may_be_in_an_optional(expression: str, verdict: bool) -> None:
    assert compile(expression).matches(VIEW) is verdict


def test_no_value_is_no_verdict() -> None:
    with pytest.raises(EvaluationError, match="optional_type could not be converted to bool"):
        compile(f"{OWN}.flags[?7]").matches(VIEW)


DERIVED: list[tuple[str, Any]] = [
    ("true", True),
    ("42", 42),
    (f"{OWN}.model", "LX-90"),
    (f"{OWN}.lanes", (8, 16)),
    (f"{OWN}.slot / 2", 2),
    (f'{OWN}.model.split("-")[0]', "LX"),
    ("[]", ()),
    (f"{OWN}.links[?1]", "pcie"),
    ("[dyn(optional.of(1)), dyn(2)]", (1, 2)),
    ("dyn(type(1))", "int"),
]


@pytest.mark.parametrize(("expression", "value"), DERIVED)
def test_a_derived_attribute_has_a_value(expression: str, value: Any) -> None:
    found = compile(expression, derived=True).value(VIEW)
    assert found == value
    assert type(found) is type(value)


def test_a_derived_version_prints_as_it_was_written() -> None:
    assert str(compile('semver("1.2.3-rc.1+b5")', derived=True).value(VIEW)) == "1.2.3-rc.1+b5"


@pytest.mark.parametrize("expression", ["null", "device.attributes", "1.5", "[device.attributes]", "{1: 2}"])
def test_what_cannot_be_an_attribute_is_not_a_derived_attribute(expression: str) -> None:
    with pytest.raises(CompileError, match="must evaluate to a primitive scalar"):
        compile(expression, derived=True)


@pytest.mark.parametrize("expression", ["dyn(optional.none())", "dyn(optional.of([1]))", f"{OWN}.links[?7]"])
def test_an_optional_without_a_scalar_is_no_attribute(expression: str) -> None:
    with pytest.raises(EvaluationError, match="unsupported CEL return type"):
        compile(expression, derived=True).value(VIEW)


def test_a_derived_list_has_one_kind_of_value() -> None:
    with pytest.raises(EvaluationError, match="list element at index 1"):
        compile('[dyn(1), dyn("a")]', derived=True).value(VIEW)
