"""Webhooks and other API servers: the real API server and Dray's accept and refuse the same, by the same fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.test_what_extends_the_api import FINE, WRONG
from tests.real.upstream.client import Client, Refused

# What the server, or a controller of it, says of its own.
OWN = ("metadata", "status", "apiVersion", "kind")


@pytest.mark.parametrize("what", FINE)
def test_what_is_right_is_stored_alike(client: Client, what: str) -> None:
    path, body = FINE[what]
    made = client.call("POST", path.strip("/"), body)
    client.call("DELETE", f"{path.strip('/')}/{made['metadata']['name']}")
    assert {name: value for name, value in made.items() if name not in OWN} == _expected(what)


def _expected(what: str) -> dict[str, Any]:
    body = FINE[what][1]
    if "spec" in body:
        return {"spec": body["spec"] | {"service": body["spec"]["service"] | {"port": 443}}}
    filled = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10}
    if "mutating" in FINE[what][0]:
        filled["reinvocationPolicy"] = "Never"
    hook = body["webhooks"][0]
    where = {"service": hook["clientConfig"]["service"] | {"port": 443}} if "service" in hook["clientConfig"] else {}
    rules = [rule | {"scope": "*"} for rule in hook["rules"]]
    return {"webhooks": [hook | filled | {"clientConfig": hook["clientConfig"] | where, "rules": rules}]}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_by_the_same_fields(client: Client, what: str) -> None:
    path, body, fields = WRONG[what]
    with pytest.raises(Refused) as refused:
        client.call("POST", path.strip("/"), body)
    assert refused.value.code == 422
    if what != "a service of no namespace":  # upstream says so of the name
        assert [cause["field"] for cause in refused.value.status["details"]["causes"]] == fields
