"""``dray story``: what happened to a pod, step by step."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import aiohttp
import click
import msgspec
from rich.console import Console

from dray.api.kinds import EVENTS, PODS
from dray.cli.output import emit, output_option, table
from dray.cli.pods import find, named
from dray.cli.source import Source, source_options
from dray.cli.trouble import Trouble
from dray.explain.story import after_death
from dray.explain.story import story as tell
from dray.runtime.stories import Line


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", help="Namespace of the pod.")
@click.option(
    "--server",
    metavar="URL",
    help="Ask a running scheduler at the address of its --serve: it knows every write and its result.",
)
@source_options
@output_option
def story(pod: str, namespace: str | None, server: str | None, source: Source, output: str) -> None:
    """Show what happened to a pod, step by step.

    Without --server, the story is assembled from the pod, its claims and its events, as far as the cluster still has them. If the
    pod is gone, only its events are left.

    \b
    Examples:
      dray story train-0 -n research
      dray story train-0 -n research -o yaml
      kubectl -n dray-system port-forward deploy/dray-scheduler 8080 &
      dray story train-0 -n research --server http://127.0.0.1:8080
      dray story train-0 --snapshot cluster.yaml -o json
    """
    name, where = named(pod, namespace)
    where = where or ("default" if server else source.namespace(None))
    lines = _asked(server, f"{where}/{name}") if server else _read(source, where, name)
    emit({"pod": f"{where}/{name}", "story": lines}, output, lambda console: _show(lines, console))


def _asked(server: str, key: str) -> list[Line]:
    if not server.startswith(("http://", "https://")):
        raise Trouble(f"--server {server}: not a URL; expected something like http://127.0.0.1:8080")

    async def get() -> bytes:
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{server}/story", params={"key": key}) as answer,
        ):
            body = await answer.read()
            if answer.status == 404:
                raise Trouble(f"{server} has no story of {key}: is it the leader, and was it running at that time?")
            if answer.status != 200:
                raise Trouble(f"{server} answered {answer.status}: {body[:200].decode(errors='replace')}")
            return body

    try:
        found: Any = msgspec.json.decode(asyncio.run(get()))
        return msgspec.convert(found["story"] if isinstance(found, dict) else found, list[Line])
    except aiohttp.ClientConnectorError as error:
        raise Trouble(
            f"cannot connect to {server}: {error.os_error.strerror}; give the address that the scheduler serves with --serve"
        ) from error
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise Trouble(f"{server}: {error or 'no answer in 10 seconds'}") from error


def _read(source: Source, namespace: str, name: str) -> list[Line]:
    snapshot = source.read(needs=(PODS,))
    events = snapshot.plain(EVENTS)
    if f"{namespace}/{name}" not in snapshot.world.all(PODS) and (gone := after_death(f"{namespace}/{name}", events)):
        return gone
    return tell(snapshot.world, find(snapshot.world, name, namespace), events)


def _show(lines: list[Line], console: Console) -> None:
    if not lines:
        console.print("Nothing is known about this pod.")
        return
    first = lines[0].at
    rows = [(_clock(line.at), f"+{line.at - first:.3f}s", line.what, line.object, line.by, line.detail) for line in lines]
    console.print(table(("time", "after", "what", "object", "by", "detail"), rows))


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
