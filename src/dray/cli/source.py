"""Where the inspecting commands read from: a live cluster, or files taken from one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from dray.api.kinds import Kind
from dray.cli.found import running
from dray.cli.trouble import Trouble, patience, told
from dray.cluster.kubeconfig import Access, KubeconfigError, load
from dray.cluster.port import ClusterError, Forbidden, NotFound
from dray.cluster.remote import Remote
from dray.cluster.served import Served
from dray.explain.snapshot import KINDS, Snapshot, SnapshotError, from_cluster, from_files, undecodable

T = TypeVar("T")


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--snapshot``, ``--kubeconfig`` and ``--context``; the command gets them as one ``source``."""

    @click.option(
        "--snapshot",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE|DIR",
        help="Read objects from files instead of a cluster, as `kubectl get … -o yaml` writes them. Repeatable.",
    )
    @click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="The cluster to read. Default: KUBECONFIG, then ~/.kube/config, then a `dray up` that runs now.",
    )
    @click.option("--context", default="", help="The context in the kubeconfig.")
    @wraps(function)
    def command(*args: Any, snapshot: tuple[Path, ...], kubeconfig: Path | None, context: str, **options: Any) -> Any:
        if snapshot and (kubeconfig or context):
            raise click.UsageError("--snapshot reads files; --kubeconfig and --context read a cluster: give one or the other")
        return function(*args, source=Source(snapshot, kubeconfig, context), **options)

    return command


class Source:
    """Reads once. Trouble becomes a message that says who must act, and exit code 2."""

    def __init__(self, snapshot: tuple[Path, ...], kubeconfig: Path | None, context: str) -> None:
        self._files, self._kubeconfig, self._context = snapshot, kubeconfig, context

    @property
    def live(self) -> bool:
        return not self._files

    @property
    def default(self) -> bool:
        """Whether nothing was named."""
        return not (self._files or self._kubeconfig or self._context)

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
        return "the cluster has" if self.live else f"{', '.join(str(file) for file in self._files)}: there are"

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
            raise Trouble(f"several `dray up` run; choose with --kubeconfig: {', '.join(map(str, clusters))}")
        return load(clusters[0], self._context)

    def read(self, needs: Sequence[Kind]) -> Snapshot:
        """Everything; without the kinds that it ``needs`` there is no answer, others that are not shown are warned of."""
        try:
            found = from_files(self._files) if self._files else self.run(lambda remote: from_cluster(remote))
        except SnapshotError as error:
            raise Trouble(str(error)) from error
        _judge_unread(found, needs)
        for problem in undecodable(found):
            click.echo(f"warning: left out: {problem}", err=True)
        return found

    def run(self, job: Callable[[Remote], Awaitable[T]]) -> T:
        """Something that is asked of the live cluster."""

        async def go() -> T:
            access = self._access()
            remote = Remote(access)
            try:
                with patience(f"still waiting for {access.server} …"):
                    return await job(remote)
            finally:
                await remote.close()

        try:
            return asyncio.run(go())
        except (KubeconfigError, ClusterError) as error:
            raise Trouble(told(error)) from error


def _judge_unread(found: Snapshot, needs: Sequence[Kind]) -> None:
    for kind in needs:
        error = found.unread.get(kind)
        if isinstance(error, NotFound):
            raise Trouble(f"the API server does not serve {kind.resource}/{kind.version}; Kubernetes 1.34 and newer do")
        if error is not None:
            raise Trouble(f"the answer needs {kind.resource}, and you may not list them: {error.message}")
    hidden = [kind.resource for kind, error in found.unread.items() if isinstance(error, Forbidden)]
    if hidden:
        click.echo(f"warning: you may not list {', '.join(sorted(hidden))}; the answer is as if there were none", err=True)
