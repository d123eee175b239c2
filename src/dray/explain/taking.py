"""Taking a snapshot: what was read of a cluster, as one file that says of itself what is in it and what is not.

Always true: the file has every kind that a decision can depend on, or says why not; it has no Secret, and nothing that no
decision depends on and that may hold one: values of environment variables, commands, probes, and the copies of whole objects
that ``kubectl apply`` and field managers keep. It is JSON, one object in a line, so that two of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dray import __version__
from dray.api.kinds import (
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Kind,
)
from dray.api.times import format_time
from dray.explain.snapshot import API_VERSION, SNAPSHOT, Header, KindRead, KindUnread, Snapshot, kind_of

Plain = dict[str, Any]

LEFT_OUT: Final = (
    "Secrets, ConfigMaps and all kinds that no placement depends on",
    "values of environment variables, commands, arguments, probes and lifecycle hooks of containers",
    "managedFields, and the annotation kubectl.kubernetes.io/last-applied-configuration",
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINERS: Final = ("command", "args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
# Where the kinds that have pods have their spec.
POD_SPECS: Final[dict[Kind, tuple[str, ...]]] = {
    PODS: ("spec",),
    **dict.fromkeys(
        (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, REPLICATION_CONTROLLERS), ("spec", "template", "spec")
    ),
    CRON_JOBS: ("spec", "jobTemplate", "spec", "template", "spec"),
    CONTROLLER_REVISIONS: ("data", "spec", "template", "spec"),
}
_encode: Final = msgspec.json.Encoder().encode


def header(found: Snapshot, now: float, server_version: str, gates: dict[str, bool], configuration: Plain | None) -> Header:
    counts: dict[Kind, int] = dict.fromkeys(found.versions, 0)
    for kind, _ in found.objects:
        counts[kind] += 1
    return Header(
        format_time(now),
        f"dray {__version__}",
        server_version,
        {kind.resource: KindRead(kind.version, counts[kind], found.versions[kind]) for kind in sorted(counts, key=_name)},
        {
            kind.resource: KindUnread(error.code, error.reason, error.message)
            for kind, error in sorted(found.unread.items(), key=lambda item: _name(item[0]))
        },
        list(LEFT_OUT),
        gates,
        configuration,
    )


def _name(kind: Kind) -> str:
    return kind.resource


def written(found: Snapshot, header: Header) -> Iterator[bytes]:
    """The file, piece by piece."""
    head = _encode({"apiVersion": API_VERSION, "kind": SNAPSHOT, "header": header})
    yield head[:-1] + b',\n"items":['
    ordered = sorted(found.objects.items(), key=lambda item: (item[0][0].resource, item[0][1]))
    for number, ((kind, _), body) in enumerate(ordered):
        yield (b",\n" if number else b"\n") + _encode(trimmed(kind, body))
    yield b"\n]}\n"


def trimmed(kind: Kind, body: Plain) -> Plain:
    """The object without what may hold secrets and decides nothing. The one given is left as it is."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations") or {}
    if _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    made = {**body, "metadata": metadata}
    return _within(made, POD_SPECS[kind]) if kind in POD_SPECS else made


def like_those_of(found: Snapshot, objects: Sequence[tuple[str, Plain]]) -> list[tuple[str, Plain]]:
    """Objects of files without what a snapshot of this kind leaves out: else whatever is in both would differ in that alone, and
    a Job that runs would be refused as changed."""
    if found.header is None:
        return list(objects)
    return [(where, _trimmed_if_known(body, where)) for where, body in objects]


def _trimmed_if_known(body: Plain, where: str) -> Plain:
    kind = kind_of(body, Path(where)) if isinstance(body.get("metadata"), dict) else None
    return trimmed(kind, body) if kind is not None else body


def _within(body: Plain, path: tuple[str, ...]) -> Plain:
    if not path:
        changed = {name: [_container(each) for each in body[name]] for name in _CONTAINERS if body.get(name)}
        return {**body, **changed}
    inner = body.get(path[0])
    return {**body, path[0]: _within(inner, path[1:])} if isinstance(inner, dict) else body


def _container(container: Plain) -> Plain:
    kept = {key: value for key, value in container.items() if key not in _OF_CONTAINERS}
    if kept.get("env"):
        kept["env"] = [{key: value for key, value in each.items() if key != "value"} for each in kept["env"]]
    return kept
