"""``dray queues shares``: the fair shares of queues alone, JSON lines in, one JSON line out for each, in the same order.

A line that cannot be answered is answered with what is wrong with it and the rest still run. The shape of lines and answers is a
fixed contract (docs/queues.md).
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, BinaryIO, Final

import click
import msgspec

from dray.queues.shares import fair_shares
from dray.queues.tree import UNLIMITED, Entitlement, Queue, QueueError, Tree

LINE_MAX: Final = 64 * 1024 * 1024
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


class Line(Named):
    total: dict[str, Amount] = {}
    queues: Annotated[list[QueueLine], msgspec.Meta(max_length=QUEUES_MAX)] = []
    k_value: float = 1.0


@click.group()
def queues() -> None:
    """Queues: what each of them deserves of the cluster, by the rules of KAI-Scheduler.

    \b
    Examples:
      dray queues shares questions.jsonl          fair shares, one JSON line for each
    """


@queues.command()
@click.argument("file", type=click.File("rb"), default="-")
def shares(file: BinaryIO) -> None:
    """Compute fair shares alone: what does each queue deserve of each resource?

    FILE has one question a line (JSON); - reads standard input. Each line holds what the cluster has and its queues, with quota,
    limit, weight, priority and what they request; -1 is unlimited. Any names of resources will do. One line answers each.
    Exit code 2 when a line was not JSON or not of this form; the other lines are answered all the same.

    \b
    Examples:
      dray queues shares questions.jsonl
      echo '{"total": {"gpu": 8}, "queues": [
        {"name": "a", "resources": {"gpu": {"quota": 2, "requested": 8}}},
        {"name": "b", "resources": {"gpu": {"quota": 2, "requested": 3}}}]}' | tr -d '\\n' | dray queues shares
    """
    if file.isatty():
        click.echo("Reading questions, one JSON object a line; Ctrl-D ends.", err=True)
    out, wrong = sys.stdout.buffer, False
    while text := file.readline(LINE_MAX + 1):
        if text.strip():
            answer = _answer(text)
            wrong = wrong or "invalid" in answer
            out.write(msgspec.json.encode(answer) + b"\n")
            out.flush()
    sys.exit(2 if wrong else 0)


def _answer(text: bytes) -> Json:
    identity: Any = None
    try:
        if len(text) > LINE_MAX:
            raise QueueError(f"the line is longer than {LINE_MAX} bytes; split it")
        identity = msgspec.json.decode(text, type=Named).id
        line = msgspec.json.decode(text, type=Line)
        found = fair_shares(line.total, _tree(line.queues), line.k_value)
        answer: Json = {"fairShare": {name: {r: _plain(a) for r, a in share.items()} for name, share in found.items()}}
    except (QueueError, msgspec.ValidationError) as error:
        answer = {"invalid": [str(error)]}
    except msgspec.DecodeError as error:
        answer = {"invalid": [f"not JSON: {error}; a question is one JSON object on one line"]}
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
