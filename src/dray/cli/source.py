"""Where the inspecting commands read from: a live cluster, or files taken from one."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dray.api.kinds import PODS, Kind
from dray.cli.configured import read_config
from dray.cli.found import running
from dray.cli.trouble import Trouble, patience, told
from dray.cluster.kubeconfig import Access, KubeconfigError, load
from dray.cluster.port import ClusterError, Forbidden, NotFound
from dray.cluster.remote import Remote
from dray.cluster.served import SWITCHED_ON, Served, not_served
from dray.explain.snapshot import (
    KINDS,
    Snapshot,
    SnapshotError,
    documents,
    files_of,
    from_cluster,
    from_files,
    undecodable,
    without_collecting,
)

if TYPE_CHECKING:
    from dray.api.gates import Gates
    from dray.scheduling.config import Config

T = TypeVar("T")

# What cannot be read is told by these commands in their own words: nobody is to see it a second time, without them.
logging.getLogger("dray").addHandler(logging.NullHandler())


KUBECONFIG_HELP: Final = "Kubeconfig of the cluster to read. Default: KUBECONFIG, ~/.kube/config, then a running `dray up`."


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--snapshot`` (or ``-f``), ``--kubeconfig`` and ``--context``; the command gets them as one ``source``."""
    return _with_source(function, "-f")


def source_options_beside_files(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command whose ``-f`` is something else."""
    return _with_source(function)


def _with_source(function: Callable[..., Any], *short: str) -> Callable[..., Any]:
    @click.option(
        *short,
        "--snapshot",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE|DIR",
        help="Read files instead of a cluster: from `dray snapshot` or `kubectl get … -o yaml`. Repeatable.",
    )
    @click.option("--kubeconfig", type=click.Path(path_type=Path), help=KUBECONFIG_HELP)
    @click.option("--context", default="", help="Kubeconfig context to use.")
    @wraps(function)
    def command(*args: Any, snapshot: tuple[Path, ...], kubeconfig: Path | None, context: str, **options: Any) -> Any:
        if snapshot and (kubeconfig or context):
            raise click.UsageError("--snapshot cannot be combined with --kubeconfig or --context")
        return function(*args, source=Source(snapshot, kubeconfig, context), **options)

    return command


def namespace_option(told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``-n``, and ``-A`` as kubectl has it for all namespaces, which is what these commands read where nobody says more."""

    def among(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("-n", "--namespace", help=f"{told}  [default: all]")
        @click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces, the same as without -n.")
        @wraps(function)
        def command(*args: Any, namespace: str | None, everywhere: bool, **options: Any) -> Any:
            if everywhere and (namespace or options.get("target")):
                raise click.UsageError("-A cannot be combined with -n or a named object")
            return function(*args, namespace=namespace, **options)

        return command

    return among


class Source:
    """Reads once. Trouble becomes a message that says who must act, and exit code 2."""

    def __init__(self, snapshot: tuple[Path, ...], kubeconfig: Path | None, context: str) -> None:
        self._files, self._kubeconfig, self._context = snapshot, kubeconfig, context

    @property
    def named(self) -> bool:
        """Whether somebody said which cluster or files to read."""
        return bool(self._files or self._kubeconfig or self._context)

    @property
    def live(self) -> bool:
        return not self._files

    @property
    def name(self) -> str:
        """What is read, for a title."""
        return ", ".join(file.name for file in self._files) if self._files else self._access().server

    async def served(self) -> Served:
        """The live cluster, to watch. Whoever asks closes it by ending."""
        return await Served.of(Remote(self._access()), KINDS)

    @property
    def holds(self) -> str:
        """The beginning of a sentence about what was read."""
        return "the cluster has" if self.live else f"{', '.join(str(file) for file in self._files)} contains"

    def namespace(self, asked: str | None) -> str:
        """The one asked for, else the context's, else ``default``."""
        if asked or self._files:
            return asked or "default"
        try:
            return self._access().namespace or "default"
        except KubeconfigError as error:
            raise Trouble(str(error)) from error

    def _access(self) -> Access:
        """What kubectl would use; where that is nothing, and nothing is named, the cluster of a `dray up` that runs now."""
        try:
            return load(self._kubeconfig, self._context)
        except KubeconfigError:
            clusters = [] if self._kubeconfig or self._context or os.environ.get("KUBECONFIG") else running()
            if not clusters:
                raise
        if len(clusters) > 1:
            raise Trouble(
                f"several `dray up` clusters are running; choose one with --kubeconfig: {', '.join(map(str, clusters))}"
            )
        return load(clusters[0], self._context)

    def read(self, needs: Sequence[Kind], decisive: Sequence[Kind] | None = None) -> Snapshot:
        """Everything; without the kinds that it ``needs`` there is no answer, others that are not shown are warned of. Files may
        have none of a kind and not say that they have read it: no answer without the ``decisive`` ones, a warning without the
        others that it needs. ``None``: the command tells of them itself."""
        try:
            with without_collecting():
                found = self._from_files() if self._files else self.run(_from_cluster)
        except SnapshotError as error:
            raise Trouble(str(error)) from error
        _judge_unread(found, needs)
        if decisive is not None:
            _judge_lacking(found, needs, decisive)
        for problem in undecodable(found):
            click.echo(f"warning: skipped: {problem}", err=True)
        return found

    def _from_files(self) -> Snapshot:
        with patience("reading the snapshot …"):
            return from_files(self._files)

    def run(self, job: Callable[[Remote], Awaitable[T]], waiting_for: str = "") -> T:
        """Something that is asked of the live cluster; ``waiting_for``, where that is not its API server."""

        async def go() -> T:
            access = self._access()
            remote = Remote(access)
            try:
                with patience(f"still waiting for {waiting_for or access.server} …"):
                    return await job(remote)
            finally:
                await remote.close()

        try:
            return asyncio.run(go())
        except (KubeconfigError, ClusterError) as error:
            raise Trouble(told(error)) from error


async def _from_cluster(remote: Remote) -> Snapshot:
    found = await from_cluster(remote)
    found.feature_gates = await features_of(remote)
    return found


async def features_of(remote: Remote | Served) -> Mapping[str, bool]:
    """How features are switched. Only of a `dray up` it is known that all parts have what the API server has."""
    from dray.api import features

    try:
        return features.read(await remote.raw("/metrics")) if "+dray" in await remote.version() else {}
    except ClusterError:
        return {}


def _of_kubernetes(kind: Kind) -> bool:
    return "." not in kind.group or kind.group.endswith(".k8s.io")


def _judge_unread(found: Snapshot, needs: Sequence[Kind]) -> None:
    why = "you may not list" if found.live else "could not be listed when the snapshot was taken"
    for kind in needs:
        error = found.unread.get(kind)
        if isinstance(error, NotFound):
            if not _of_kubernetes(kind):
                continue  # of what nobody has defined there is nothing
            raise Trouble(not_served(kind) + ("" if kind in SWITCHED_ON else "; Kubernetes 1.34 and newer do"))
        if error is not None:
            raise Trouble(f"the answer needs {kind.resource}, which {why}: {error.message}")
    hidden = ", ".join(sorted(kind.resource for kind, error in found.unread.items() if isinstance(error, Forbidden)))
    if hidden:
        told = f"you may not list {hidden}" if found.live else f"the snapshot was taken without permission to list {hidden}"
        click.echo(f"warning: {told}; assuming that there are none", err=True)


def _judge_lacking(found: Snapshot, needs: Sequence[Kind], decisive: Sequence[Kind]) -> None:
    """What files have nothing of, and do not say that they have read, may well be there."""
    lacking = {} if found.live else {kind: told for kind, told in found.unknown.items() if kind not in found.unread}
    for kind in decisive:
        if kind in lacking:
            raise Trouble(f"{lacking[kind]}, which this command needs; `dray snapshot` saves everything that is needed")
    if told := [kind.resource for kind in needs if kind in lacking]:
        then = "what depends on them is unknown, and the rest assumes that there are none"
        click.echo(f"warning: the files have no {', '.join(told)}; {then}", err=True)


def objects_of(files: Sequence[Path]) -> list[tuple[str, dict[str, Any]]]:
    """What is in files of manifests, each with where it is from. Files with nothing in them are a mistake."""
    with patience("reading the files …"):
        found = [(f"{file}: object {n}", each) for file in files_of(files) for n, each in enumerate(documents(file), 1)]
    if files and not found:
        raise SnapshotError(f"{', '.join(map(str, files))}: there is no object in it")
    return found


# ------------------------------------------------------------------------------------------------- how pods are placed


def as_configuration(file: Path) -> dict[str, Any]:
    """A KubeSchedulerConfiguration as it is in the file, after a look at whether it is one."""
    placing_of(file, None)
    return next(iter(documents(file)))


def now_of(found: Snapshot) -> float:
    """Of files, when they were taken or their youngest object was made: the same files give the same answer."""
    return found.taken_at or (None if found.live else found.newest) or time.time()


def warn_of_unread(found: Snapshot, coming: Iterable[str] = ()) -> None:
    """Of a rehearsal: what it takes for none. ``coming``: kinds of which there are some then."""
    from dray.explain.missing import as_if_alone

    unknown = {kind: why for kind, why in found.unknown.items() if kind.kind not in coming}
    for unread in as_if_alone(found.world.all(PODS).values() if PODS in found.world.kinds else (), unknown):
        click.echo(f"warning: {unread}; `dray snapshot` saves everything that is needed", err=True)


def placing_of(file: Path | None, found: Snapshot | None) -> tuple[Config | None, Gates]:
    """How the scheduler is set up, and which features are on: from the file, else as the snapshot says."""
    from dray.api.gates import GateError, Gates
    from dray.scheduling.configuration import ConfigError, parse

    header = found.header if found is not None else None
    try:
        switched = header.feature_gates if header is not None else found.feature_gates if found is not None else {}
        gates = Gates.dray().updated(switched)
        if file is not None:
            return read_config(file, gates), gates
        taken = header.scheduler_configuration if header is not None else None
        return (parse(taken, gates) if taken is not None else None), gates
    except (ConfigError, GateError) as error:
        named = file is not None and isinstance(error, ConfigError)
        raise Trouble(str(error) if named else f"snapshot header: {error}") from error
