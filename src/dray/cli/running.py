"""What the long-running commands share: options, logs, and ending well."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.api.digits import whole
from dray.api.gates import WITHOUT_EFFECT, GateError, Gates
from dray.cli.trouble import PATIENCE_SECONDS, told
from dray.cluster.kubeconfig import KubeconfigError, load
from dray.cluster.port import Cluster, ClusterError
from dray.cluster.remote import Remote
from dray.cluster.served import Served
from dray.runtime import logs
from dray.runtime.leader import LeadershipLost, Settings
from dray.runtime.live import DeciderFailed
from dray.runtime.process import Part, run, stop_on_signals

if TYPE_CHECKING:
    from dray.scheduling.config import Config

log = logging.getLogger(__name__)


def log_options(level: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--log-format`` and ``--log-level``, ``level`` by default, applied before the command runs."""

    def options(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--log-format",
            type=click.Choice(["logfmt", "json"]),
            default="logfmt",
            show_default=True,
            help="Log format, one record per line.",
        )
        @click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default=level,
            show_default=True,
            help="Lowest level to log.",
        )
        @wraps(function)
        def command(*args: Any, log_format: logs.Format, log_level: str, **options: Any) -> Any:
            logs.configure(log_format, log_level)
            return function(*args, **options)

        return command

    return options


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to reach a cluster, what to serve and whether to elect a leader."""
    for option in reversed(
        (
            click.option(
                "--kubeconfig",
                type=click.Path(path_type=Path),
                help="Kubeconfig of the cluster. Default: KUBECONFIG, ~/.kube/config, then the pod's service account.",
            ),
            click.option("--context", default="", help="Kubeconfig context to use."),
            click.option("--leader-elect", is_flag=True, help="Work only while holding a Lease, to run several replicas."),
            click.option(
                "--leader-elect-lease-duration",
                default=15.0,
                show_default=True,
                help="Seconds until another replica may take over.",
            ),
            click.option(
                "--leader-elect-renew-deadline",
                default=10.0,
                show_default=True,
                help="Seconds without renewal before giving up leadership.",
            ),
            click.option("--leader-elect-retry-period", default=2.0, show_default=True, help="Seconds between attempts."),
            click.option(
                "--leader-elect-resource-namespace", default="kube-system", show_default=True, help="Namespace of the Lease."
            ),
            click.option(
                "--leader-elect-resource-name",
                default="",
                metavar="NAME",
                help="Name of the Lease; give each independent instance its own.",
            ),
            click.option(
                "--serve",
                default="",
                metavar="HOST:PORT",
                help="Serve /healthz, /readyz, /livez, /metrics and /story on this address.",
            ),
            click.option(
                "--feature-gates",
                default="",
                metavar="A=true,B=false",
                help="Turn features on or off, by their Kubernetes names.",
            ),
        )
    ):
        function = option(function)
    return log_options("info")(function)


class Connection:
    """The values of ``cluster_options``."""

    def __init__(self, lease: str, options: dict[str, Any]) -> None:
        self.kubeconfig: Path | None = options["kubeconfig"]
        self.context: str = options["context"]
        self.serve: str = served_address(options["serve"])
        self.gates = gates(options["feature_gates"])
        self.election: Settings | None = None
        if options["leader_elect"]:
            try:
                self.election = Settings(
                    options["leader_elect_resource_name"] or lease,
                    options["leader_elect_resource_namespace"],
                    options["leader_elect_lease_duration"],
                    options["leader_elect_renew_deadline"],
                    options["leader_elect_retry_period"],
                )
            except ValueError as error:
                raise click.UsageError(str(error)) from error

    def adopt(self, config: Config) -> None:
        """What a scheduler's configuration says about the connection, where the command line says nothing. Raises
        ValueError for times of an election that cannot work."""
        for notice in config.notices:
            log.warning("ignoring a setting", extra={"detail": notice})
        said = config.leader_election
        if self.election is None and said is not None:
            self.election = Settings(said.name, said.namespace, said.lease_duration, said.renew_deadline, said.retry_period)
        if self.kubeconfig is None and config.kubeconfig:
            self.kubeconfig = Path(config.kubeconfig)

    def remote(self) -> Remote:
        return Remote(load(self.kubeconfig, self.context))


def since_start() -> float:
    """Seconds since this process began, which is when the user pressed return: reading the program counts."""
    try:
        after_boot = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot
    except (OSError, AttributeError):  # not Linux: the nearest that there is
        return time.process_time()


def served_address(text: str) -> str:
    """``HOST:PORT`` as given to ``--serve``, or nothing."""
    _, colon, port = text.rpartition(":")
    number = whole(port)
    if text and not (colon and number is not None and number < 65536):
        raise click.BadParameter(f"{text!r} is not HOST:PORT, for example 127.0.0.1:8080", param_hint="--serve")
    return text


def gates(text: str) -> Gates:
    try:
        found = Gates.parse(text, Gates.dray())
    except GateError as error:
        raise click.BadParameter(str(error), param_hint="--feature-gates") from error
    asked = {name.strip() for name, _, value in (each.partition("=") for each in text.split(",")) if value.strip() == "true"}
    for gate in sorted((found.on | asked) & WITHOUT_EFFECT):
        click.echo(f"warning: feature gate {gate} has no effect: not implemented in Dray yet", err=True)
    return found


def run_on_cluster(
    connection: Connection,
    part: Part,
    *,
    first: Callable[[Remote], Awaitable[None]] | None = None,
    through: Callable[[Cluster], Cluster] = lambda cluster: cluster,
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Run a part on a real cluster until a signal; exit 1 when it cannot go on. ``first`` is done before it starts; ``through``
    is how the part sees the cluster; ``meanwhile`` is done, in a thread, while the cluster says what it serves and has."""

    async def go() -> None:
        stop = stop_on_signals()
        remote = connection.remote()
        closing: Cluster = remote
        gc.disable()  # until every kind is listed: of what is loaded and listed nothing is garbage
        try:
            loading = asyncio.create_task(asyncio.to_thread(meanwhile)) if meanwhile is not None else None
            cluster = await _connected(remote, part, stop, begin=loading is not None)
            closing = cluster or remote
            if loading is not None:
                await loading
            if cluster is not None:
                if first is not None:
                    await first(remote)
                await run(through(cluster), part, stop)
        finally:
            gc.enable()
            await closing.close()

    to_the_end(go)


async def _connected(remote: Remote, part: Part, stop: asyncio.Event, begin: bool) -> Served | None:
    """What the cluster serves, or None when a signal comes first. A server that keeps one waiting is told of."""
    asking, stopped = asyncio.create_task(Served.of(remote, part.kinds, begin)), asyncio.create_task(stop.wait())
    for patience in (PATIENCE_SECONDS, None):
        ended, _ = await asyncio.wait({asking, stopped}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if ended:
            break
        log.info("still waiting for the API server", extra={"server": remote.access.server})
    stopped.cancel()
    if asking in ended:
        return asking.result()
    asking.cancel()
    await asyncio.wait({asking})
    return None


def to_the_end(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run to the end on the fastest loop there is; known failures are one line and exit code 1."""
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(_first_error(job))
    except BrokenPipeError:
        raise
    except (KubeconfigError, ClusterError, OSError) as error:
        raise click.ClickException(told(error)) from error
    except LeadershipLost as lost:
        log.error("leadership lost, exiting; restart to continue from the state of the cluster", extra={"error": str(lost)})
        raise SystemExit(1) from None
    except DeciderFailed as failed:
        if isinstance(failed.__cause__, BrokenPipeError):  # one that tells what it sees, and nobody reads on
            raise failed.__cause__ from None
        log.exception("internal error: this is a bug in Dray; restart to continue from the state of the cluster")
        raise SystemExit(1) from None


async def _first_error(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.get_running_loop().set_exception_handler(told_by_the_loop)
    try:
        await job()
    except* (KubeconfigError, ClusterError, LeadershipLost, OSError, DeciderFailed) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def told_by_the_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waits for. A connection that broke is not among it, although uvloop says so with a traceback when one breaks
    while it is being closed: whoever uses a connection hears of its end and says it."""
    if "transport" in context and "protocol" in context:
        log.debug("a connection broke", extra={"error": str(context.get("exception") or context["message"])})
    else:
        loop.default_exception_handler(context)


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
