"""Admission policies: what a real kube-apiserver refuses, accepts and warns of, Dray does too, in the same words."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.apiserver.admission.asking import Said, ask, changed, holds, prepare, remove, verify, verify_change
from tests.apiserver.admission.cases import CASES, Json
from tests.apiserver.admission.changes import CHANGES
from tests.apiserver.admission.test_what_policies_may_not_do import WRONG
from tests.real.upstream.client import Client, Refused, eventually

_serial = itertools.count(1)


class Sender:
    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(
        self, method: str, path: str, body: Json | None, user: str, extra: tuple[tuple[str, str], ...], type: str
    ) -> Said:
        headers = {**self._client.headers, "Content-Type": type}
        if user:
            headers["Impersonate-User"] = user
            if user != "bob":
                headers["Impersonate-Group"] = "system:masters"
            headers |= {f"Impersonate-Extra-{name.replace('/', '%2f')}": value for name, value in extra}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._client.url}{path}", method=method, data=data, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=30, context=self._client.trusted)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            warnings = tuple(value[7:-1] for value in answer.headers.get_all("Warning") or ())
            return Said(answer.status, json.loads(answer.read()), warnings)


@pytest.fixture
def send(client: Client) -> Sender:
    return Sender(client)


@pytest.fixture
def place(client: Client, send: Sender) -> Iterator[str]:
    """A namespace, for which the policy is named."""
    name = f"test-policies-{next(_serial)}"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": "a"}}})
    yield name
    remove(send, name)


@pytest.mark.parametrize("name", CASES)
def test_a_policy_decides_alike(send: Sender, place: str, name: str) -> None:
    case = CASES[name]
    prepare(send, case, place)
    eventually(lambda: holds(case.asked[0], ask(send, case.asked[0], place), place), "the policy holds")
    for asked in case.asked:
        verify(asked, ask(send, asked, place), place)


@pytest.mark.parametrize("name", CHANGES)
def test_a_policy_changes_objects_alike(send: Sender, place: str, name: str) -> None:
    case = CHANGES[name]
    prepare(send, case, place)
    eventually(lambda: changed(case.asked[0], ask(send, case.asked[0], place), place), "the policy holds")
    for asked in case.asked:
        verify_change(asked, ask(send, asked, place), place)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_policy_is_told_alike(client: Client, what: str) -> None:
    path, body, expected = WRONG[what]
    with pytest.raises(Refused) as refused:
        client.call("POST", path.strip("/"), body)
    assert {cause["field"]: cause["message"] for cause in refused.value.status["details"]["causes"]} == expected
