"""Server-side apply, as kube-apiserver does it: the same random writes of several managers on both servers end in the same
objects, owned by the same managers, with the same conflicts by the way.

Lists in lists, in structs and in maps are merged by their keys, as sets or as a whole, in Deployments and in a defined kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.real.upstream.client import Client, Json, Refused, eventually
from tests.real.upstream.control_plane import Server

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
MANAGERS = ("one", "two", "three")
STEPS = 12
SEEDS = range(12)
DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"
SHELVES = "apis/apply.example.com/v1/namespaces/default/shelves"

Maker = Callable[[random.Random, str], Json]


@pytest.mark.parametrize("seed", SEEDS)
def test_deployments_end_the_same(real_server: Server, embedded_server: Server, seed: int) -> None:
    agree(real_server, embedded_server, DEPLOYMENTS, deployment, f"d{seed}", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_of_a_defined_kind_end_the_same(real_server: Server, embedded_server: Server, seed: int) -> None:
    for server in (real_server, embedded_server):
        define(Client(server.kubeconfig))
    agree(real_server, embedded_server, SHELVES, shelf, f"s{seed}", seed)


def agree(real: Server, embedded: Server, path: str, make: Maker, name: str, seed: int) -> None:
    clients = Client(real.kubeconfig), Client(embedded.kubeconfig)
    chance, done = random.Random(seed), []
    for _ in range(STEPS):
        step = written(chance, make, name, first=not done)
        done.append(step)
        theirs, ours = (outcome(client, path, name, *step) for client in clients)
        if left_null(theirs):
            assert isinstance(ours, dict)
            return
        assert ours == theirs, "\n".join(map(str, done))


def written(chance: random.Random, make: Maker, name: str, *, first: bool) -> tuple[str, str, Json]:
    """Query, media type and body of one write."""
    manager, obj = chance.choice(MANAGERS), make(chance, name)
    if not first and chance.random() < 0.2:
        return f"fieldManager=editor-{manager}", MERGE, {"spec": obj["spec"]}
    force = "&force=true" if chance.random() < 0.4 else ""
    return f"fieldManager={manager}{force}", APPLY, obj


def outcome(client: Client, path: str, name: str, query: str, media: str, body: Json) -> Any:
    try:
        return plain(client.call("PATCH", f"{path}/{name}?{query}", body, media))
    except Refused as refused:
        causes = (refused.status.get("details") or {}).get("causes") or ()
        return refused.code, sorted((cause.get("field", ""), cause.get("reason", "")) for cause in causes)


def left_null(outcome: Any) -> bool:
    """kube-apiserver writes null for a map or list whose last element an applier gives up while somebody else has the whole, and
    then refuses that as not being a map or list. Ours leaves it out."""
    return isinstance(outcome, tuple) and outcome[0] == 422 and {reason for _, reason in outcome[1]} == {"FieldValueTypeInvalid"}


def plain(obj: Json) -> Json:
    metadata = obj["metadata"]
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        metadata.pop(field)
    for entry in metadata.get("managedFields", ()):
        entry.pop("time", None)
    metadata.get("managedFields", []).sort(key=lambda entry: (entry["manager"], entry["operation"]))
    return obj


# what is written


def some(chance: random.Random, *values: Any) -> list[Any]:
    return chance.sample(values, chance.randint(0, len(values)))


def maybe(chance: random.Random, **values: Callable[[], Any]) -> Json:
    return {name: make() for name, make in values.items() if chance.random() < 0.6}


def deployment(chance: random.Random, name: str) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(chance)}
    spec = {"selector": {"matchLabels": labels}, "template": template, **maybe(chance, replicas=lambda: chance.randint(1, 3))}
    metadata = {"name": name, **maybe(chance, annotations=lambda: {key: chance.choice("xy") for key in some(chance, "a", "b")})}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def pod_spec(chance: random.Random) -> Json:
    names = some(chance, "app", "side", "log") or ["app"]
    return {
        "containers": [container(chance, name) for name in names],
        **maybe(
            chance,
            tolerations=lambda: [{"key": key, "operator": "Exists"} for key in some(chance, "t", "u")],
            nodeSelector=lambda: dict.fromkeys(some(chance, "n", "m"), "v"),
            imagePullSecrets=lambda: [{"name": key} for key in some(chance, "p", "q")],
        ),
    }


def container(chance: random.Random, name: str) -> Json:
    ports = [{"containerPort": number, "protocol": protocol} for number in (80, 81) for protocol in ("TCP", "UDP")]
    return {
        "name": name,
        "image": f"i{chance.randint(1, 2)}",
        **maybe(
            chance,
            env=lambda: [{"name": key, "value": chance.choice("12")} for key in some(chance, "A", "B", "C")],
            ports=lambda: [named(chance, port, f"p{i}") for i, port in enumerate(some(chance, *ports))],
            args=lambda: some(chance, "x", "y"),
            resources=lambda: {"limits": dict.fromkeys(some(chance, "cpu", "memory"), "1")},
        ),
    }


def named(chance: random.Random, port: Json, name: str) -> Json:
    return {**port, "name": name} if chance.random() < 0.6 else port


def few(chance: random.Random, *values: Any) -> list[Any]:
    """Seldom none."""
    return chance.sample(values, chance.randint(chance.random() < 0.95, len(values)))


def shelf(chance: random.Random, name: str) -> Json:
    def books() -> list[Json]:
        return [{"title": title, **maybe(chance, tags=tags, pages=lambda: chance.randint(1, 2))} for title in few(chance, *"abc")]

    def tags() -> list[Any]:
        return few(chance, "t1", "t2", "t3")

    spec = maybe(
        chance,
        books=books,
        tags=tags,
        notes=lambda: few(chance, "n1", "n2"),
        rooms=lambda: {room: books() for room in few(chance, "r", "s")},
        marks=lambda: {room: tags() for room in few(chance, "r", "s")},
        pairs=lambda: {room: {key: chance.choice("xy") for key in few(chance, "k", "l")} for room in few(chance, "r", "s")},
        open=lambda: {"a": {key: chance.choice("xy") for key in few(chance, "k", "l")}, "list": few(chance, 1, 2)},
    )
    return {"apiVersion": "apply.example.com/v1", "kind": "Shelf", "metadata": {"name": name}, "spec": spec}


def define(client: Client) -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    tags = {"type": "array", "items": text, "x-kubernetes-list-type": "set"}
    book = {"type": "object", "required": ["title"], "properties": {"title": text, "pages": number, "tags": tags}}
    books = {"type": "array", "items": book, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["title"]}
    pair = {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"}
    fields = {
        "books": books,
        "tags": tags,
        "notes": {"type": "array", "items": text},
        "rooms": {"type": "object", "additionalProperties": books},
        "marks": {"type": "object", "additionalProperties": tags},
        "pairs": {"type": "object", "additionalProperties": pair},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Shelf", "plural": "shelves", "singular": "shelf"}
    spec = {"group": "apply.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    try:
        client.create({**kind, "metadata": {"name": "shelves.apply.example.com"}, "spec": spec})
    except Refused as refused:
        if refused.code != 409:
            raise
    eventually(lambda: served(client), "shelves are served")


def served(client: Client) -> bool:
    try:
        client.call("GET", SHELVES)
    except Refused:
        return False
    return True
