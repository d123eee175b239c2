"""A namespace of a cluster, and how cases are put to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.apiserver.api import Answer
from tests.apiserver.admission.asking import Said
from tests.apiserver.admission.cases import Json
from tests.apiserver.conftest import Cluster

NAMESPACE = "test-1"


class Sender:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __call__(
        self, method: str, path: str, body: Json | None, user: str, extra: tuple[tuple[str, str], ...], type: str
    ) -> Said:
        headers: tuple[tuple[str, str], ...] = ()
        if user:
            headers = (("impersonate-user", user),)
            if user != "bob":
                headers += (("impersonate-group", "system:masters"),)
            headers += tuple((f"impersonate-extra-{name.replace('/', '%2f')}", value) for name, value in extra)
        given: dict[str, Any] = {"impersonate": headers} if headers else {}
        answer = self.cluster.ask(method, path, body, content_type=type, **given)
        assert isinstance(answer, Answer)
        warnings = tuple(value[7:-1] for name, value in answer.headers if name == "Warning")
        return Said(answer.code, msgspec.json.decode(answer.body), warnings)


@pytest.fixture
def send(cluster: Cluster) -> Sender:
    labels = {"team": "a", "kubernetes.io/metadata.name": NAMESPACE}
    cluster.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    return Sender(cluster)
