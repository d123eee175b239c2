"""Functions give what Kubernetes gives; the values here were checked against it."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.resource import Device
from dray.cel import CompileError, DeviceView, EvaluationError, compile

VIEW = DeviceView.of("driver", Device())

VALUES: list[tuple[str, Any]] = [
    # strings
    ('"hello".charAt(1)', "e"),
    ('"hello".charAt(5)', ""),
    ('"hello".indexOf("l", 3)', 3),
    ('"hello".indexOf("z")', -1),
    ('"hello".lastIndexOf("l", 2)', 2),
    ('"hello".lastIndexOf("")', 5),
    ('["a", "b"].join("-")', "a-b"),
    ('"HÉllo".lowerAscii()', "hÉllo"),
    ('"abc".replace("", "-")', "-a-b-c-"),
    ('"aaa".replace("a", "b", 2)', "bba"),
    ('"a,b,c".split(",", 2)', ("a", "b,c")),
    ('"abc".split("")', ("a", "b", "c")),
    ('"a,b".split(",", 0)', ()),
    ('"hello".substring(1, 3)', "el"),
    ('"\\t x ".trim()', "x"),
    ('strings.quote("a\\"b\\n")', '"a\\"b\\n"'),
    # format
    ('"%s is %d%%".format(["x", 7])', "x is 7%"),
    ('"%.2f".format([1234.5678])', "1,234.57"),
    ('"%s %s".format([duration("1h"), timestamp(0)])', "3600s 1970-01-01T00:00:00Z"),
    ('"%s %s".format([type(1), [type(1)]])', "int [int]"),
    ('"%f %s".format(["NaN", [[], {"a": null}]])', 'NaN [[], {"a":null}]'),
    ('"%e".format([1234.5678])', "1.234568×10⁰³"),
    ('"%.3e".format([1234.5678])', "1.234568×10⁰³"),
    ('"%x %X %b %o".format([255, 255, 5, 8])', "ff FF 101 10"),
    ('"%s".format([["a", "b"]])', '["a", "b"]'),
    ('"%s".format([{"k": 1}])', '{"k":1}'),
    ('"%s".format([null])', "null"),
    # regular expressions
    ('"abc123".find("[0-9]+")', "123"),
    ('"abc".find("[0-9]")', ""),
    ('"a1b22".findAll("[0-9]+")', ("1", "22")),
    ('"a1b22".findAll("[0-9]+", 1)', ("1",)),
    ('"abc".findAll("x*")', ("", "", "", "")),
    # lists and sets
    ("[3, 1, 2].sort()", (1, 2, 3)),
    ("[3, 1, 2].sortBy(x, -x)", (3, 2, 1)),
    ("[1, 2, 2, 1].distinct()", (1, 2)),
    ("[[1], [2, 3]].flatten()", (1, 2, 3)),
    ("[[[1]], [[2, 3]]].flatten(2).size()", 3),
    ("lists.range(3)", (0, 1, 2)),
    ("[1, 2, 3].slice(1, 3)", (2, 3)),
    ("[1, 2].reverse()", (2, 1)),
    ("[1, 2].first().value()", 1),
    ("[].last().orValue(7)", 7),
    ("[1, 2, 3].sum()", 6),
    ("[2, 3, 1].max()", 3),
    ('["b", "a"].min()', "a"),
    ("[1, 1, 2].isSorted()", True),
    ("[5, 6, 5].lastIndexOf(5)", 2),
    ("[5].indexOf(6)", -1),
    ("sets.contains([1, 2, 3], [3, 1])", True),
    ("sets.intersects([1], [2])", False),
    ("sets.equivalent([1, 2], [2, 1, 1])", True),
    # conversions
    ("int('-12')", -12),
    ("int(-1.9)", -1),
    ("int(7u)", 7),
    ("string(1.0)", "1"),
    ("string(1234567.0)", "1.234567e+06"),
    ("string(-2.5e-7)", "-2.5e-07"),
    ("string(b'abc')", "abc"),
    ("bool('T')", True),
    ("string(duration('1h1.5s'))", "3601.5s"),
    ("int(duration('1s'))", 1000000000),
    # time
    ("duration('90m').getHours()", 1),
    ("timestamp('2024-02-29T12:30:00Z').getDayOfYear()", 59),
    ("timestamp('2024-01-01T00:00:00Z').getHours('America/New_York')", 19),
    ("timestamp('2024-01-01T00:00:00Z').getDayOfWeek()", 1),
    ("string(timestamp('2024-01-01T00:00:00Z') + duration('36h'))", "2024-01-02T12:00:00Z"),
    # quantities and versions
    ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0),
    ("quantity('1.5').isInteger()", False),
    ("quantity('3k').asInteger()", 3000),
    ("quantity('1').add(quantity('500m')).asApproximateFloat() == 1.5", True),
    ("sign(quantity('-5'))", -1),
    ("isQuantity('five')", False),
    ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))", True),
    ("semver('v01.2', true).minor()", 2),
    ("isSemver('v1.2.3')", False),
    ("isSemver('1.02.3')", False),
    ("semver('1.0.0+a') == semver('1.0.0+b')", True),
    ("semver('1.0.0-2').isLessThan(semver('1.0.0-10'))", True),
    ("semver('1.0.0-10').isLessThan(semver('1.0.0-a'))", True),
    # network
    ("ip('::1').isLoopback()", True),
    ("ip('10.0.0.1').family()", 4),
    ("ip.isCanonical('::0001')", False),
    ("isIP('::ffff:1.2.3.4')", False),
    ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", True),
    ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", True),
    ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
    ("isCIDR('10.0.0.0/33')", False),
    ("cidr('10.0.0.1/8').prefixLength()", 8),
    ("url('https://h.example:8443/a%20b?x=1&x=2').getPort()", "8443"),
    ("url('https://h.example/p?x=1&x=2').getQuery()['x']", ("1", "2")),
    ("isURL('../relative')", False),
    ("url('http://[::1]:80/').getHostname()", "::1"),
    (r'"C".matches("\\QC\\E") && "\\C".matches("^\\\\C") && "C".matches("[A-C]")', True),
    # durations and the like are no lists
    ('dyn(timestamp(0)) == dyn(duration("0s"))', False),
    ('dyn([1000000000]) == dyn(duration("1s"))', False),
    ('dyn(["int"]) == dyn(type(1))', False),
    ('dyn(duration("1s")) in [dyn([1000000000])]', False),
    ('dyn(duration("1s")).includes(1000000000)', False),
    ('[dyn(timestamp(0)), dyn(duration("0s"))].distinct().size()', 2),
    ('[dyn(duration("1s")), dyn([1])].flatten().size()', 2),
    # named formats
    ("format.dns1123Label().validate('fine').hasValue()", False),
    ("format.dns1123Label().validate('-').hasValue()", True),
    ("format.named('uuid').value().validate('x').value()", ("does not match the UUID format",)),
    ("format.named('nope').hasValue()", False),
    ("format.date().validate('2024-02-30').hasValue()", True),
    ("format.labelValue().validate('').hasValue()", False),
]


@pytest.mark.parametrize(("expression", "value"), VALUES)
def test_value(expression: str, value: Any) -> None:
    found = compile(expression, derived=True).value(VIEW)
    assert found == value
    assert type(found) is type(value)


FAILURES = [
    ('"abc".charAt(9)', "index out of range: 9"),
    ('"abc".substring(2, 1)', "invalid substring range"),
    ("[1].slice(0, 2)", "list is length 1"),
    ("[].max()", "max called on empty list"),
    ('semver(device.driver + "x")', "is not a semantic version"),
    ("quantity(device.driver).asInteger()", "quantities must match"),
    ("ip(device.driver).family()", "parse error"),
    ('"a".matches(device.driver + "(") ? 1 : 2', "error parsing regexp"),
    ("lists.range(-1)", "must be non-negative"),
    ("[dyn(1), dyn('a')].max()", "no such overload"),
    ("dyn(duration('1s'))[0]", "no such key: 0"),
    ("dyn(url('/x')).exists(x, x == '/x')", "expected iterable type"),
    ('"a".matches(r"\\C")', "invalid escape sequence"),
    ('"a".find(r"a\\\\\\C")', "invalid escape sequence"),
    ('"a".matches("(?P<é>a)")', "invalid named capture"),
]


@pytest.mark.parametrize(("expression", "message"), FAILURES)
def test_failure(expression: str, message: str) -> None:
    with pytest.raises((EvaluationError, CompileError)) as caught:
        compile(expression, derived=True).value(VIEW)
    assert message in caught.value.message


# Upstream gives an error for the first five, true for the next, and +02:00 for the last: docs/fidelity.md, expressions.
ACCIDENTS: list[tuple[str, Any]] = [
    ('quantity("128Ti").asInteger()', 2**47),
    ('quantity("1000m").isInteger() && quantity("1.0").isInteger() && quantity("1000000000000000000").isInteger()', True),
    ('dyn(semver("1.0.0")) in ["1.0.0", "2.0.0"]', False),
    ('dyn(["b", "a"]).distinct().min()', "a"),
    ('dyn(["b", "a"]).distinct().isSorted()', False),
    ('dyn([semver("1.0.0")]) == ["1.0.0"]', False),
    ('string(timestamp("2024-01-01T02:00:00+02:00"))', "2024-01-01T00:00:00Z"),
]


@pytest.mark.parametrize(("expression", "value"), ACCIDENTS)
def test_expressions_do_not_fail_by_accident(expression: str, value: Any) -> None:
    assert compile(expression, derived=True).value(VIEW) == value
