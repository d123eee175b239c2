"""``dray queues``: the tree of a cluster's queues; fair shares alone (``shares``); worlds run until they settle (``settle``).

``shares`` and ``settle`` take JSON lines and answer one for each.

A line that cannot be answered is answered with what is wrong with it and the rest still run. The shape of lines and answers is a
fixed contract (docs/queues.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import click
import msgspec
from rich.console import Console

from dray.api.amounts import counted
from dray.api.kinds import NODES, PODS, QUEUES
from dray.cli.lines import LINE_MAX, answer_lines, unreadable
from dray.cli.output import emit, output_option, table
from dray.cli.source import Source, now_of, placing_of, source_options
from dray.cli.tables import Fitted
from dray.explain.queues import QueueRow, QueueTree, resources, survey
from dray.queues.shares import fair_shares
from dray.queues.tree import UNLIMITED, Entitlement, Queue, QueueError, Tree
from dray.scheduling.workloads.jobs import CPU, MEMORY
from dray.simulate.settle import Settling, WorldLine

_AMOUNTS: Final = ("used", "share", "quota", "limit")
# Resources that have columns of their own.
_MOST_BESIDE: Final = 2
QUEUES_MAX: Final = 10_000
# Resources that may stand beside a queue's name instead of under ``resources``.
_BESIDE: Final = ("gpu", "cpu_milli", "memory_bytes")

Json = dict[str, Any]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Terms(msgspec.Struct):
    """A queue's entry for one resource. ``requested`` is ``allocated`` and ``pending`` together unless it is given."""

    quota: float = 0.0
    limit: float = UNLIMITED
    over_quota_weight: Amount = 1.0
    allocated: Amount = 0.0
    pending: Amount = 0.0
    requested: Amount | None = None
    historical_usage: Amount = 0.0


class QueueLine(msgspec.Struct):
    name: str
    parent: str | None = None
    priority: int = 100
    creation_rank: float = 0.0
    resources: dict[str, Terms] = {}
    gpu: Terms | None = None
    cpu_milli: Terms | None = None
    memory_bytes: Terms | None = None


class Named(msgspec.Struct):
    id: Any = None


class SettleLine(Named, kw_only=True):
    world: WorldLine


class Line(Named):
    total: dict[str, Amount] = {}
    queues: Annotated[list[QueueLine], msgspec.Meta(max_length=QUEUES_MAX)] = []
    k_value: float = 1.0


@click.group(invoke_without_command=True)
@click.option("--config", type=click.Path(path_type=Path), help="The scheduler's KubeSchedulerConfiguration, if it uses one.")
@source_options
@output_option
@click.pass_context
def queues(context: click.Context, config: Path | None, source: Source, output: str) -> None:
    """Show the queue tree: quota, fair share, usage and waiting pods.

    Reads the cluster, or files with --snapshot, and counts as the scheduler does. SHARE is the queue's fair share now, by the
    rules of KAI-Scheduler; - means unlimited. Exit code 2 when the cluster cannot be read.

    \b
    Examples:
      dray queues                                 the queues of the cluster that kubectl uses
      dray queues -o json                         for scripts
      dray queues shares questions.jsonl          compute fair shares, from JSON lines
      dray queues settle worlds.jsonl             where pods end up, from JSON lines
    """
    if context.invoked_subcommand is None:
        found = source.read(needs=(QUEUES, PODS, NODES), decisive=(QUEUES, NODES))
        settings, gates = placing_of(config, found)
        tree = survey(found.world, now_of(found), settings, gates)
        emit(tree, output, lambda screen: _show(tree, screen, wide=output == "wide"))


def _show(tree: QueueTree, screen: Console, *, wide: bool) -> None:
    notes = list(_notes(tree))
    if tree.queues:
        names = [name for name in resources(tree) if wide or name not in (CPU, MEMORY) or _limited(tree, name)]
        narrow = len(names) <= _MOST_BESIDE and not any("/" in name for name in names)
        screen.print(_beside(tree, names) if narrow else _below(tree, names, every=wide))
    elif not notes:
        screen.print("No queues found: pods are scheduled by priority and age.")
    for note in notes:
        screen.print(note, style="yellow", markup=False)


def _notes(tree: QueueTree) -> Iterator[str]:
    """Queues from which no pod starts."""

    def wait(count: int) -> str:
        return f"{counted(count, 'pod')} waiting in it"

    for name, error in tree.wrong.items():
        yield f"queue {name} is ignored: {error}" + (f"; {wait(count)}" if (count := tree.wait_in_vain.get(name)) else "")
    for name, count in tree.wait_in_vain.items():
        if name not in tree.wrong:
            below = ", ".join(row.name for row in tree.queues if row.parent == name)
            yield f"queue {name} accepts no pods because it has child queues ({below}); {wait(count)}"
    for name in sorted({*tree.missing, *tree.left}):
        told = []
        if count := tree.missing.get(name):
            told.append(wait(count))
        if count := tree.left.get(name):
            told.append(f"{counted(count, 'pod')} running in it, from which no queue can reclaim")
        yield f"queue {name} does not exist: {'; '.join(told)}"


def _beside(tree: QueueTree, names: list[str]) -> Fitted:
    columns = ["queue", "pri", "waiting", *(f"{name} {what}" for name in names for what in _AMOUNTS)]
    rows = [(*_named(row), *(cell for name in names for cell in _cells(row, name))) for row in tree.queues]
    return table(columns, rows)


def _below(tree: QueueTree, names: list[str], *, every: bool) -> Fitted:
    """Resources with long names, or many of them: one line for each that the queue has to do with, or for every one."""
    rows: list[tuple[str, ...]] = []
    for row in tree.queues:
        lines = [(name, *_cells(row, name)) for name in names if every or set(_cells(row, name)) - {"0", "-"}] or [("",) * 5]
        rows += [(*(_named(row) if not index else ("", "", "")), *line) for index, line in enumerate(lines)]
    return table(["queue", "pri", "waiting", "resource", *_AMOUNTS], rows)


def _named(row: QueueRow) -> tuple[str, str, str]:
    return "  " * row.depth + row.name, str(row.priority), str(row.waiting_pods)


def _limited(tree: QueueTree, name: str) -> bool:
    return any(row.quota.get(name) != "unlimited" or row.limit.get(name) != "unlimited" for row in tree.queues)


def _cells(row: QueueRow, name: str) -> tuple[str, str, str, str]:
    def said(amounts: dict[str, str]) -> str:
        return amounts.get(name, "0").replace("unlimited", "-")

    return said(row.allocated), said(row.fair_share), said(row.quota), said(row.limit)


@queues.command()
@click.argument("file", type=click.File("rb"), default="-")
def shares(file: BinaryIO) -> None:
    """Compute the fair share of each queue, for each resource.

    FILE contains JSON questions, one per line or pretty-printed; - reads standard input.
    A question has the total resources and the queues, each with
    quota, limit, weight, priority and requests; -1 means unlimited. Resource names are free to choose. Each gets one answer.
    Exit code 2 when a line is not JSON or not a valid question; the others are still answered.

    \b
    Examples:
      dray queues shares questions.jsonl
      echo '{"total": {"gpu": 8}, "queues": [
        {"name": "a", "resources": {"gpu": {"quota": 2, "requested": 8}}},
        {"name": "b", "resources": {"gpu": {"quota": 2, "requested": 3}}}]}' | dray queues shares
    """
    _answer_lines(file, _shares)


@queues.command()
@click.argument("file", type=click.File("rb"), default="-")
def settle(file: BinaryIO) -> None:
    """Run the scheduler on small worlds of nodes, queues and pod groups until nothing changes.

    FILE contains JSON worlds, one per line or pretty-printed; - reads standard input.
    The real scheduler runs in virtual time: in each round it
    places and evicts pods; between rounds, placed pods start and evicted pods become pending again. A world that still changes
    after 12 rounds counts as not settled. Each gets one answer.
    Exit code 2 when a line is not JSON or not a valid world; the others are still answered.

    \b
    Examples:
      dray queues settle worlds.jsonl
      echo '{"world": {"nodes": [{"name": "n", "allocatable": {"cpu_milli": 8000, "memory_bytes": 1e10, "gpu": 2, "pods": 10}}],
        "queues": [{"name": "a", "gpu": {"quota": 1}}], "podgroups": [{"name": "job", "queue": "a", "min_member": 2, "pods": [
        {"name": "x", "requests": {"gpu": 1}}, {"name": "y", "requests": {"gpu": 1}}]}]}}' | dray queues settle
    """
    _answer_lines(file, _settled)


def _answer_lines(file: BinaryIO, answer_to: Callable[[bytes], Json]) -> None:
    def of_line(text: bytes) -> tuple[Json, bool]:
        answer = _answer(text, answer_to)
        return answer, "invalid" not in answer

    sys.exit(0 if answer_lines(file, of_line) else 2)


def _shares(text: bytes) -> Json:
    line = msgspec.json.decode(text, type=Line)
    found = fair_shares(line.total, _tree(line.queues), line.k_value)
    return {"fairShare": {name: {r: _plain(a) for r, a in share.items()} for name, share in found.items()}}


def _settled(text: bytes) -> Json:
    answer: Json = msgspec.to_builtins(Settling(msgspec.json.decode(text, type=SettleLine).world).settle())
    return answer


def _answer(text: bytes, answer_to: Callable[[bytes], Json]) -> Json:
    identity: Any = None
    try:
        if len(text) > LINE_MAX:
            raise QueueError(f"the line is longer than {LINE_MAX} bytes; split it")
        identity = msgspec.json.decode(text, type=Named).id
        answer = answer_to(text)
    except (QueueError, msgspec.DecodeError, UnicodeDecodeError) as error:
        answer = {"invalid": [unreadable(error)]}
    except RecursionError:
        answer = {"invalid": ["the line is nested too deeply"]}
    return answer if identity is None else {"id": identity, **answer}


def _tree(lines: list[QueueLine]) -> Tree:
    """Parents that say nothing of what is requested get the sum of what is below them."""
    tree = Tree(Queue(line.name, line.parent or "", line.priority, line.creation_rank) for line in lines)
    terms = {line.name: _terms(line) for line in lines}
    sums: dict[str, dict[str, float]] = {name: {} for name in terms}
    for queue in reversed(list(tree.downwards())):
        for resource, found in terms[queue.name].items():
            total = sums[queue.name].get(resource, 0.0) if not tree.is_leaf(queue.name) else found.allocated + found.pending
            sums[queue.name][resource] = found.requested if found.requested is not None else total
        for resource, amount in sums[queue.name].items() if queue.parent else ():
            sums[queue.parent][resource] = sums[queue.parent].get(resource, 0.0) + amount
    return Tree(
        msgspec.structs.replace(
            tree[name],
            resources={
                resource: Entitlement(
                    _bounded(found.quota),
                    _bounded(found.limit),
                    found.over_quota_weight,
                    sums[name][resource],
                    found.historical_usage,
                )
                for resource, found in each.items()
            },
        )
        for name, each in terms.items()
    )


def _terms(line: QueueLine) -> dict[str, Terms]:
    beside = {name: found for name in _BESIDE if (found := getattr(line, name)) is not None}
    return {**beside, **line.resources}


def _bounded(amount: float) -> float:
    return UNLIMITED if amount < 0 else amount


def _plain(amount: float) -> float | int:
    return int(amount) if amount.is_integer() else amount
