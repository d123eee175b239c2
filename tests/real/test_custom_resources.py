"""Definitions and objects of defined kinds end on ``dray up`` as on a real kube-apiserver: the same answers, the same words."""

from __future__ import annotations

import copy
import itertools
import time
from typing import Any

import pytest

from tests.apiserver.custom.conftest import definition, fields
from tests.apiserver.custom.test_definitions import BROKEN, broken
from tests.apiserver.custom.test_objects import FINE, FORMATS, WRONG, text
from tests.apiserver.custom.test_rules import FAILING, LISTS, REFUSED, SEEN, listing, lists, ruled
from tests.real.upstream.client import Client, Refused
from tests.real.upstream.control_plane import Server

Json = dict[str, Any]
DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_serial = itertools.count(1)


def renamed(defined: Json) -> Json:
    """In a group of its own, so that no case meets another."""
    made = copy.deepcopy(defined)
    spec = made["spec"]
    if "." in spec["group"]:
        spec["group"] = f"g{next(_serial)}.example.com"
    made["metadata"]["name"] = f"{spec['names']['plural']}.{spec['group']}"
    return made


class Both:
    """A real server and Dray's, asked the same."""

    def __init__(self, real: Server, ours: Server) -> None:
        self.clients = [Client(server.kubeconfig) for server in (real, ours)]

    def call(self, method: str, path: str, body: Json | None = None) -> tuple[Json, Json]:
        """The two answers, as far as they can be equal: code, reason, and what is said of each field."""
        real, ours = (_answer(client, method, path, body) for client in self.clients)
        return real, ours

    def define(self, defined: Json) -> str:
        """Where the objects of the kind are."""
        spec = defined["spec"]
        for client in self.clients:
            client.call("POST", DEFINITIONS, defined)
        path = f"apis/{spec['group']}/{spec['versions'][0]['name']}/namespaces/default/{spec['names']['plural']}"
        for client in self.clients:
            _wait_for(client, path)
        return path


def _answer(client: Client, method: str, path: str, body: Json | None) -> Json:
    try:
        return {"code": 200, "object": _stable(client.call(method, path, body))}
    except Refused as refused:
        details = refused.status.get("details") or {}
        causes = sorted((_field(each.get("field") or ""), each.get("reason")) for each in details.get("causes") or ())
        return {"code": refused.code, "causes": causes, "message": refused.status.get("message")}


def _field(path: str) -> str:
    """Upstream speaks of fields that v1 does not have, where all versions are alike."""
    path = path.replace("spec.validation.", "spec.versions[0].schema.")
    for name in ("subresources", "selectableFields", "additionalPrinterColumns"):
        path = path.replace(f"spec.{name}", f"spec.versions[0].{name}")
    return path.replace(".JSONPath", ".jsonPath")


def _stable(found: Json) -> Json:
    return {name: value for name, value in found.items() if name not in ("metadata",)}


def _wait_for(client: Client, path: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            client.call("GET", path)
            return
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.fixture(scope="session")
def both(real_server: Server, embedded_server: Server) -> Both:
    return Both(real_server, embedded_server)


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_definition_is_refused_alike(both: Both, why: str) -> None:
    real, ours = both.call("POST", DEFINITIONS, renamed(broken(BROKEN[why][0])))
    assert real["code"] == 422
    assert (ours["code"], ours["causes"]) == (real["code"], real["causes"]), (real["message"], ours["message"])


@pytest.mark.parametrize("why", REFUSED)
def test_a_broken_rule_is_refused_alike(both: Both, why: str) -> None:
    real, ours = both.call("POST", DEFINITIONS, renamed(definition(spec=REFUSED[why][0])))
    assert real["code"] == 422
    if why != "rules that cost too much together":  # of many that cost the same, upstream names any
        assert (ours["code"], set(ours["causes"])) == (real["code"], set(real["causes"])), (real["message"], ours["message"])
    assert ours["code"] == 422


@pytest.mark.parametrize(("schema", "value", "told"), WRONG, ids=[told[:40] for _, _, told in WRONG])
def test_a_wrong_value_is_refused_with_the_same_words(both: Both, schema: Json, value: Any, told: str) -> None:
    defined = renamed(definition(spec=fields(v=schema)))
    path = both.define(defined)
    real, ours = both.call("POST", path, _object(defined, value))
    assert ours["code"] == real["code"] == 422
    assert told in ours["message"]
    if "<nil>" not in real["message"]:  # where upstream does not know the field, Dray names it
        assert ours == real


@pytest.mark.parametrize(("schema", "value"), FINE)
def test_a_right_value_is_stored_alike(both: Both, schema: Json, value: Any) -> None:
    defined = renamed(definition(spec=fields(v=schema)))
    real, ours = both.call("POST", both.define(defined), _object(defined, value))
    assert ours == real


@pytest.mark.parametrize("format", FORMATS)
def test_formats_mean_the_same(both: Both, format: str) -> None:
    defined = renamed(definition(spec=fields(v=text(format=format))))
    path = both.define(defined)
    for number, value in enumerate(FORMATS[format]):
        real, ours = both.call("POST", path, _object(defined, value, f"w{number}"))
        assert ours == real, value


@pytest.mark.parametrize(("schema", "value", "rule"), SEEN, ids=[rule[:40] for _, _, rule in SEEN])
def test_rules_hold_of_the_same_values(both: Both, schema: Json, value: Any, rule: str) -> None:
    defined = renamed(definition(spec=fields(v=ruled(schema, rule))))
    path = both.define(defined)
    real, ours = both.call("POST", path, _object(defined, value))
    assert ours == real
    assert real["code"] == 200


@pytest.mark.parametrize(("schema", "value", "rule", "told"), FAILING, ids=[told[8:60] for _, _, _, told in FAILING])
def test_rules_that_fail_say_the_same(both: Both, schema: Json, value: Any, rule: Any, told: str) -> None:
    defined = renamed(definition(spec=fields(v=ruled(schema, rule))))
    real, ours = both.call("POST", both.define(defined), _object(defined, value))
    assert ours == real
    assert real["message"].endswith(told)


@pytest.mark.parametrize(("extra", "values", "rule", "holds"), LISTS)
def test_lists_are_equal_alike(both: Both, extra: Json, values: tuple[list[Any], list[Any]], rule: str, holds: bool) -> None:
    defined = renamed(listing(extra, rule))
    real, ours = both.call("POST", both.define(defined), _object(defined, lists(*values)))
    assert ours == real
    assert (real["code"] == 200) == holds


def _object(defined: Json, value: Any, name: str = "w") -> Json:
    spec = defined["spec"]
    version = f"{spec['group']}/{spec['versions'][0]['name']}"
    return {"apiVersion": version, "kind": spec["names"]["kind"], "metadata": {"name": name}, "spec": {"v": value}}
