"""The smallest scenario that still goes wrong in the same way: whatever can be left out is left out.

Always true: the answer fails with the kind that was asked for; the same documents give the same answer; the work is bounded by a
number of runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Final

from tests.simulate.judging import judge
from tests.simulate.random_scenarios import Document

RUNS_MAX: Final = 400


class Minimising:
    """Takes parts away for as long as ``kind`` still happens."""

    def __init__(self, documents: list[Document], kind: str, runs: int = RUNS_MAX) -> None:
        self.documents, self.kind, self.runs = copy.deepcopy(documents), kind, runs

    def smallest(self) -> list[Document]:
        before = None
        while before != (before := _size(self.documents)) and self.runs > 0:
            self._without_steps()
            for change in (_fewer_pods, _less_hardware, _fewer_objects, _no_faults):
                self._try_all(change)
        return self.documents

    def _without_steps(self) -> None:
        """Halves, quarters, … single steps."""
        size = max(len(_steps(self.documents)) // 2, 1)
        while True:
            start = 0
            while start < len(_steps(self.documents)) and self.runs > 0:
                candidate = copy.deepcopy(self.documents)
                del _steps(candidate)[start : start + size]
                if not self._fails(candidate):
                    start += size
            if size == 1:
                return
            size //= 2

    def _try_all(self, changes: Callable[[list[Document]], Iterator[list[Document]]]) -> None:
        tried = 0
        while self.runs > 0:
            candidate = next((each for number, each in enumerate(changes(self.documents)) if number == tried), None)
            if candidate is None:
                return
            if not self._fails(candidate):
                tried += 1

    def _fails(self, candidate: list[Document]) -> bool:
        """Whether the candidate goes wrong as well; then it is the one to go on with."""
        self.runs -= 1
        fails = self.kind in judge(candidate).kinds
        if fails:
            self.documents = candidate
        return fails


def _spec(documents: list[Document]) -> Document:
    return next(each for each in documents if each["kind"] == "Scenario")["spec"]  # type: ignore[no-any-return]


def _steps(documents: list[Document]) -> list[Document]:
    return _spec(documents)["steps"]  # type: ignore[no-any-return]


def _size(documents: list[Document]) -> int:
    return len(str(documents))


def _fewer_pods(documents: list[Document]) -> Iterator[list[Document]]:
    for number, step in enumerate(_steps(documents)):
        if step.get("count", 1) > 2:  # one pod alone would have another name, which deletions and patches do not know
            candidate = copy.deepcopy(documents)
            _steps(candidate)[number]["count"] -= 1
            yield candidate


def _less_hardware(documents: list[Document]) -> Iterator[list[Document]]:
    for number, entry in enumerate(_spec(documents)["hardware"]):
        name, _, count = entry.partition(":")
        candidate = copy.deepcopy(documents)
        entries = _spec(candidate)["hardware"]
        entries[number : number + 1] = [f"{name}:{int(count) - 1}"] if int(count) > 1 else []
        yield candidate


def _fewer_objects(documents: list[Document]) -> Iterator[list[Document]]:
    for number, document in enumerate(documents):
        if document["kind"] != "Scenario":
            yield copy.deepcopy(documents[:number] + documents[number + 1 :])


def _no_faults(documents: list[Document]) -> Iterator[list[Document]]:
    if "faults" in _spec(documents):
        candidate = copy.deepcopy(documents)
        del _spec(candidate)["faults"]
        yield candidate
