"""The syntax of names, at its edges."""

from __future__ import annotations

import pytest

from dray.api import names


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (names.label, ["a", "a-b", "0", "a" * 63], ["", "A", "-a", "a-", "a.b", "a" * 64, "ä"]),
        (names.subdomain, ["a", "a.b", "a-1.b", "a" * 253], ["", "a..b", ".a", "a.", "A", "a_b", "a" * 254]),
        (
            names.qualified_name,
            ["a", "A.b_c-d", "example.com/a", "a" * 63],
            ["", "/a", "a/", "a/b/c", "-a", "a b", "a" * 64, "A_b/c"],
        ),
        (names.label_value, ["", "a", "A.b", "a" * 63], ["-", "a b", "a" * 64]),
        (names.c_identifier, ["a", "_a1"], ["", "1a", "a-b"]),
        (names.env_name, ["A", "1", "a.b c"], ["a=b", "", "ä", "\t"]),
        (names.config_key, ["a", "a.b", ".a", "A_b"], ["", ".", "..", "..a", "a b", "a" * 254]),
        (names.port_name, ["http", "a-1"], ["", "1", "a--b", "-a", "a" * 16]),
        (names.extended_resource, ["example.com/gpu"], ["gpu", "kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.a/b"]),
    ],
)
def test_rules_of_names(rule, right, wrong):
    assert [name for name in right if rule(name)] == []
    assert [name for name in wrong if not rule(name)] == []


@pytest.mark.parametrize("version", ["1.0.0", "0.0.0", "1.2.3-rc.1+build.5", "1.0.0-0a"])
def test_semantic_versions(version):
    assert names.is_semver(version)


@pytest.mark.parametrize("version", ["v1.0.0", "1.0", "1.0.0.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0+", ""])
def test_what_is_not_a_semantic_version(version):
    assert not names.is_semver(version)


@pytest.mark.timeout(5)
def test_hostile_names_cost_little():
    for rule in (names.label, names.subdomain, names.qualified_name, names.label_value, names.c_identifier):
        assert rule("a-" * 500_000)
    assert not names.is_semver("1.0.0-" + "0" * 1_000_000 + "-.")
