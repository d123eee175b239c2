"""Completion indexes of indexed Jobs: which index a pod has, and sets of indexes as text (``0,2-4``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.core import Pod
from dray.api.digits import whole
from dray.api.workloads import Job

INDEX: Final = "batch.kubernetes.io/job-completion-index"


def indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def index_of(pod: Pod) -> int | None:
    return whole(pod.metadata.annotations.get(INDEX, ""))


def parse_completed(text: str, job: Job) -> set[int | None]:
    """``0-2,5``: those that the job has."""
    found: set[int | None] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        start, end = whole(first), whole(last or first)
        if start is not None and end is not None:
            found.update(range(start, min(end + 1, job.spec.completions or 0)))
    return found


def completed_text(indexes: Iterable[int | None]) -> str:
    parts: list[list[int]] = []
    for index in sorted(index for index in indexes if index is not None):
        if parts and parts[-1][-1] == index - 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)
