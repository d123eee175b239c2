"""A cluster at one moment, from files or from a live read, as a World.

Files are what ``dray snapshot`` wrote, what ``kubectl get … -o yaml`` or ``-o json`` gives, or manifests: single objects, several
documents, lists, or a folder of such files. Always true: the same files give the same World; objects of kinds that Dray does not
look at are left out and counted; a broken file is an error that names file and place; a kind that a cluster did not show, or that
the files do not have, is ``unknown`` and never taken for an empty one without saying so.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dray.api import kinds, yaml_text
from dray.api.defaults import apply_defaults
from dray.api.kinds import Kind
from dray.api.meta import DecodeError, decode, without_nulls
from dray.api.times import parse_time
from dray.cluster.port import Cluster, Forbidden, NotFound, Refused, refused
from dray.cluster.served import OLDER
from dray.cluster.world import World
from dray.explain.values import wrong

_NO_DECISION_DEPENDS_ON: Final = (
    *("configmaps", "leases", "secrets", "serviceaccounts", "endpoints", "endpointslices", "certificatesigningrequests"),
    *("clusterroles", "clusterrolebindings", "roles", "rolebindings", "customresourcedefinitions"),
)
# Everything that a decision can depend on.
KINDS: Final[tuple[Kind, ...]] = tuple(
    sorted(
        (value for value in vars(kinds).values() if isinstance(value, Kind) and value.plural not in _NO_DECISION_DEPENDS_ON),
        key=lambda kind: kind.resource,
    )
)
_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}
_BY_RESOURCE: Final = {kind.resource: kind for kind in KINDS}
API_VERSION: Final = "dray.dev/v1alpha1"
SNAPSHOT: Final = "Snapshot"
# v1beta2 has the shape of v1; v1beta1 has another.
_OTHER_SHAPE: Final = {("resource.k8s.io", "v1beta1"), ("resource.k8s.io", "v1alpha3")}
_CLAIMS: Final = (kinds.RESOURCE_CLAIMS, kinds.RESOURCE_CLAIM_TEMPLATES)
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_UNAUTHORIZED: Final = 401
_ALIASES_MAX: Final = 20


class SnapshotError(Exception):
    """The snapshot cannot be read; whoever made it must act. Names file and place."""


class KindRead(msgspec.Struct, rename="camel", omit_defaults=True):
    """How much of a kind was read, in which version, and at which version of the cluster."""

    version: str
    objects: int
    resource_version: str = ""


class KindUnread(msgspec.Struct):
    """Why nothing of a kind was read: the answer of the API server."""

    code: int
    reason: str
    message: str


class Header(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a snapshot says of itself: when, by and from what it was taken, what is in it and what is not."""

    taken_at: str
    taken_by: str
    server_version: str = ""
    kinds: dict[str, KindRead] = {}
    unread: dict[str, KindUnread] = {}
    left_out: list[str] = []
    feature_gates: dict[str, bool] = {}
    scheduler_configuration: dict[str, Any] | None = None


class Snapshot(msgspec.Struct):
    """The world, the plain objects that it was made of, how many objects of which kinds were left out, the kinds that a
    cluster did not show, with its answer, and what a file that ``dray snapshot`` wrote says of itself."""

    world: World
    objects: dict[tuple[Kind, str], dict[str, Any]]
    left_out: Counter[str]
    unread: dict[Kind, Refused] = msgspec.field(default_factory=dict)
    header: Header | None = None
    versions: dict[Kind, str] = msgspec.field(default_factory=dict)
    """At which version of the cluster each kind was listed."""
    live: bool = False
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """How features are switched in a cluster that says so for all its parts: a ``dray up``."""

    def plain(self, kind: Kind) -> Iterator[dict[str, Any]]:
        return (body for (found, _), body in self.objects.items() if found == kind)

    @property
    def taken_at(self) -> float | None:
        """When it was taken, where a file says so."""
        return parse_time(self.header.taken_at) if self.header is not None else None

    @property
    def newest(self) -> float | None:
        """When the youngest of its objects was created."""
        stamps = (body["metadata"].get("creationTimestamp") for body in self.objects.values())
        return max((parse_time(stamp) for stamp in stamps if stamp), default=None)

    @property
    def unknown(self) -> dict[Kind, str]:
        """The kinds of which nothing can be told, and why: there may be objects of them. A kind that a cluster does not serve
        has none; of files that do not say that they have read a kind, and that have none of it, it is unknown."""
        who = "you may not list" if self.live else "whoever took the snapshot could not list"
        hidden = {kind: f"{who} {kind.resource}" for kind, error in self.unread.items() if isinstance(error, Forbidden)}
        if self.live:
            return hidden
        there = {kind for kind, _ in self.objects}
        if self.header is None:
            return {kind: f"the files have no {kind.resource}" for kind in KINDS if kind not in there}
        # Another version of Dray may have known fewer kinds.
        told = self.header.kinds.keys() | self.header.unread.keys()
        never = {
            kind: f"the snapshot has no {kind.resource}" for kind in KINDS if kind.resource not in told and kind not in there
        }
        return {**never, **hidden}


@contextmanager
def without_collecting() -> Iterator[None]:
    """A cluster is very many objects without cycles: looking through them for some, again and again while more are made, takes
    longer than making them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def from_files(paths: Sequence[Path]) -> Snapshot:
    """Later files replace objects of the same name in earlier ones."""
    objects: dict[tuple[Kind, str], dict[str, Any]] = {}
    left_out: Counter[str] = Counter()
    headers: list[Header] = []
    empty = True
    for file in files_of(paths):
        for document, where in _documents(file):
            empty = False
            if is_snapshot(document):
                headers.append(header_of(document, where))
            for body in _apart(document, where):
                kind = kind_of(body, file)
                if kind is None:
                    left_out[str(body["kind"])] += 1
                    continue
                body = _completed(kind, body, file)
                if problem := wrong(body):
                    raise SnapshotError(f"{file}: {kind.kind} {key_of(body)}: {problem}")
                objects[kind, key_of(body)] = body
    if empty:
        raise SnapshotError(f"{', '.join(map(str, paths))}: there is no object in it")
    header = headers[-1] if headers else None
    return Snapshot(_world(objects), objects, left_out, _unread(header, objects), header)


def _unread(header: Header | None, objects: Iterable[tuple[Kind, str]]) -> dict[Kind, Refused]:
    """What could not be read when the snapshot was taken, and is not in another file either."""
    there = {kind for kind, _ in objects}
    told = header.unread if header is not None else {}
    found = {kind: why for name, why in told.items() if (kind := _BY_RESOURCE.get(name)) is not None and kind not in there}
    return {kind: refused(msgspec.to_builtins(why), why.code) for kind, why in found.items()}


def from_objects(objects: dict[tuple[Kind, str], dict[str, Any]]) -> Snapshot:
    """A cluster of which everything is known: these objects, as its API server has them."""
    return Snapshot(_world(objects), objects, Counter(), live=True)


async def from_cluster(cluster: Cluster, wanted: Sequence[Kind] = KINDS) -> Snapshot:
    """One list of each kind. Those that the server does not have, or does not show us, are ``unread``."""
    objects: dict[tuple[Kind, str], dict[str, Any]] = {}
    unread: dict[Kind, Refused] = {}
    versions: dict[Kind, str] = {}

    async def read(kind: Kind) -> None:
        try:
            raws, versions[kind] = await _listed(cluster, kind)
        except (NotFound, Forbidden) as error:
            if error.code == _UNAUTHORIZED:
                raise
            unread[kind] = error
            return
        for raw in raws:
            body = msgspec.json.decode(raw)
            objects[kind, key_of(body)] = {"apiVersion": kind.api_version, "kind": kind.kind, **body}

    await asyncio.gather(*(read(kind) for kind in wanted))
    return Snapshot(_world(objects), objects, Counter(), unread, versions=versions, live=True)


async def _listed(cluster: Cluster, kind: Kind) -> tuple[list[bytes], str]:
    """In the newest version that the server has."""
    *newer, oldest = (msgspec.structs.replace(kind, version=version) for version in (kind.version, *OLDER.get(kind, ())))
    for candidate in newer:
        try:
            return await cluster.list(candidate)
        except NotFound:
            continue
    return await cluster.list(oldest)


def _world(objects: dict[tuple[Kind, str], dict[str, Any]]) -> World:
    world = World(KINDS)
    by_kind: dict[Kind, list[dict[str, Any]]] = {}
    for (kind, _), body in objects.items():
        by_kind.setdefault(kind, []).append(body)
    for kind in KINDS:
        if kind in by_kind:
            world.replace(kind, by_kind[kind])
    return world


# -------------------------------------------------------------------------------------------------------------- files


# As kubectl has it.
STDIN: Final = Path("-")


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and those in folders, in order; ``-`` is standard input."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(child for child in path.rglob("*") if child.suffix in _SUFFIXES and child.is_file())
            if not found:
                raise SnapshotError(f"{path}: the folder has no .yaml or .json file")
            files += found
        elif path == STDIN or path.exists():
            files.append(path)
        else:
            raise SnapshotError(f"{path} does not exist")
    return files


def documents(file: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file, with lists and snapshots taken apart."""
    for document, where in _documents(file):
        yield from _apart(document, where)


def documents_in(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The objects in a text, which errors call ``name``."""
    for document, where in _documents_in(text, name):
        yield from _apart(document, where)


def _documents(file: Path) -> Iterator[tuple[Any, str]]:
    try:
        text = sys.stdin.read() if file == STDIN else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{file}: {yaml_text.unreadable(error)}") from error
    yield from _documents_in(text, str(file))


def _documents_in(text: str, name: str) -> Iterator[tuple[Any, str]]:
    try:
        loaded = _loaded(text)
    except yaml.YAMLError as error:
        raise SnapshotError(f"{name}: {yaml_text.unreadable(error)}") from error
    for number, document in enumerate(loaded, 1):
        if document is not None:
            yield document, f"{name}: document {number}"


def is_snapshot(document: Any) -> bool:
    return isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == (API_VERSION, SNAPSHOT)


def header_of(document: dict[str, Any], where: str) -> Header:
    try:
        header = msgspec.convert(document.get("header"), Header)
        parse_time(header.taken_at)
        return header
    except (msgspec.ValidationError, ValueError) as error:
        raise SnapshotError(f"{where}: header: {error}; take it again with `dray snapshot`") from error


def _loaded(text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        try:
            return [msgspec.json.decode(text)]
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML has braces too, and says better where a file is broken
    loaded = yaml_text.documents(text)
    _bounded(loaded, len(text) * _ALIASES_MAX)
    return loaded


def _bounded(loaded: list[Any], most: int) -> None:
    """A few bytes of aliases can stand for gigabytes, or for themselves: refused before anybody walks through them."""
    left: list[tuple[Any, int]] = [(loaded, 0)]
    while left:
        value, depth = left.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        most -= len(inner)
        if depth > yaml_text.DEPTH_MAX:
            raise yaml.YAMLError("it is nested too deeply")
        if most < 0:
            raise yaml.YAMLError(f"its aliases make it more than {_ALIASES_MAX} times as large")
        left += [(item, depth + 1) for item in inner if isinstance(item, (dict, list))]


def _apart(document: Any, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str) or not document.get("apiVersion"):
        raise SnapshotError(f"{where}: is not a Kubernetes object (it needs apiVersion and kind)")
    if (document["kind"].endswith("List") or is_snapshot(document)) and "items" in document:
        if not isinstance(document["items"], list):
            raise SnapshotError(f"{where}: items is not a list")
        for number, item in enumerate(document["items"]):
            if isinstance(item, dict) and "kind" not in item:
                item = {"apiVersion": document["apiVersion"], "kind": document["kind"].removesuffix("List"), **item}
            yield from _apart(item, f"{where}: items[{number}]")
    else:
        yield document


def kind_of(body: dict[str, Any], file: Path) -> Kind | None:
    """The kind of a plain object, or None for one that Dray does not look at."""
    group, _, version = str(body["apiVersion"]).rpartition("/")
    if (group, version) in _OTHER_SHAPE:
        plural = str(body["kind"]).lower() + "s"
        raise SnapshotError(
            f"{file}: {body['kind']} of {group}/{version}: take it as {group}/v1 (kubectl get {plural}.v1.{group})"
        )
    if (group, body["kind"]) == ("", "Event"):
        return kinds.EVENTS
    return _BY_NAME.get((group, str(body["kind"])))


def _completed(kind: Kind, body: dict[str, Any], file: Path) -> dict[str, Any]:
    """With the namespace and uid that an API server would have given, and the defaults of claims, without which they ask for
    nothing."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise SnapshotError(f"{file}: {kind.kind} without metadata.name")
    if kind.namespaced:
        metadata.setdefault("namespace", "default")
    if kind in _CLAIMS and "uid" not in metadata:
        with suppress(DecodeError):  # what has the wrong shape is left out later, with a warning
            decode(kind.type, body)
            body = apply_defaults(kind.plural, without_nulls(body), 0.0)
    body["metadata"].setdefault("uid", f"{kind.plural}/{key_of(body)}")
    return body


def key_of(body: dict[str, Any]) -> str:
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def undecodable(snapshot: Snapshot) -> Iterable[str]:
    """Objects that are in the files and that the World could not take, with why."""
    for (kind, key), body in snapshot.objects.items():
        if snapshot.world.get(kind, key) is None:
            try:
                msgspec.convert(body, kind.type)
            except (msgspec.ValidationError, DecodeError) as error:
                yield f"{kind.kind} {key}: {error}"
