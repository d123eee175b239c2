"""Completion indexes of indexed Jobs: which index a pod has, and sets of indexes as text (``0,2-4``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.core import Pod
from dray.api.workloads import Job

INDEX: Final = "batch.kubernetes.io/job-completion-index"


def indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else None


def parse_completed(text: str) -> set[int | None]:
    found: set[int | None] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), int(last or first) + 1))
    return found


def completed_text(indexes: Iterable[int | None]) -> str:
    parts: list[list[int]] = []
    for index in sorted(index for index in indexes if index is not None):
        if parts and parts[-1][-1] == index - 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)
