"""``make soak``: random scenarios on all cores, for as long as it is asked for; what goes wrong becomes a small scenario file.

python -m tests.simulate.soak                    100,000 seeds that nobody has tried, on all cores
python -m tests.simulate.soak --count 500 --start 0
python -m tests.simulate.soak --seed 113         this one again, minimised and written to a file
python -m tests.simulate.soak --teams            with queues and gangs that need more than there is, in every one of them
python -m tests.simulate.soak --mixtures         with much of everything at once, on nodes with zones, while drivers come and go
python -m tests.simulate.soak --crowds           gangs that would fit, too many of them: one leaves for another all the time
python -m tests.simulate.soak --hands            with hands that edit objects while everything runs; with any of the others
python -m tests.simulate.soak FILE …             scenario files: what goes wrong with them
python -m tests.simulate.soak --pods 1000000     so many pods come and go in one cluster: what is remembered of them must not grow
python -m tests.simulate.soak --pods 1000000 --lean    without kubelets, most pods without devices: in a fifth of the time
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import msgspec
import yaml

from dray.explain.snapshot import documents as documents_of
from tests.simulate.churning import told
from tests.simulate.judging import Outcome, judge
from tests.simulate.minimising import Minimising
from tests.simulate.random_crowds import crowd
from tests.simulate.random_hands import with_hands
from tests.simulate.random_scenarios import Document, generate

COUNT = 100_000
PODS_EVERY = 5_000  # pods between two looks at what is remembered
FOLDER = Path("soak")


class Flavour(msgspec.Struct, frozen=True):
    """What of all that can happen is drawn."""

    company: bool = False
    teams: bool = False
    mixtures: bool = False
    crowds: bool = False
    hands: bool = False

    def drawn(self, seed: int) -> list[Document]:
        drawn = crowd(seed) if self.crowds else self._generated(seed)
        return with_hands(drawn, seed) if self.hands else drawn

    def _generated(self, seed: int) -> list[Document]:
        return generate(seed, company=self.company, teams=self.teams, mixtures=self.mixtures)

    @property
    def options(self) -> str:
        if self.crowds:
            said = " --crowds"
        else:
            alone, teams = "" if self.company else " --alone", " --teams" if self.teams else ""
            said = f"{' --mixtures' if self.mixtures else alone}{teams}"
        return f"{said}{' --hands' if self.hands else ''}"


def judged(seed: int, flavour: Flavour) -> tuple[int, Outcome]:
    return seed, judge(flavour.drawn(seed))


def outcomes(seeds: Iterator[int], jobs: int, flavour: Flavour) -> Iterator[tuple[int, Outcome]]:
    """In the order in which they end; never more on their way than keep all cores busy."""
    with ProcessPoolExecutor(jobs) as pool:
        under_way: set[Future[tuple[int, Outcome]]] = set()
        try:
            while True:
                while len(under_way) < 4 * jobs and (seed := next(seeds, None)) is not None:
                    under_way.add(pool.submit(judged, seed, flavour))
                if not under_way:
                    return
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        finally:
            for future in under_way:
                future.cancel()


def minimised(seed: int, kind: str, documents: list[Document]) -> Path:
    """The file with the smallest scenario that goes wrong like this seed does."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{kind.replace(' ', '-').replace(':', '')}-{seed}.yaml"
    path.write_text(yaml.safe_dump_all(Minimising(documents, kind).smallest(), sort_keys=False))
    return path


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.files:
        return _files(asked.files)
    if asked.seed is not None:
        return _one(asked.seed, _flavour(asked))
    if asked.pods is not None:
        return told(asked.pods, min(asked.pods, PODS_EVERY * (4 if asked.lean else 1)), lean=asked.lean)
    return _many(asked)


def _flavour(asked: argparse.Namespace) -> Flavour:
    return Flavour(not asked.alone, asked.teams, asked.mixtures, asked.crowds, asked.hands)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many seeds (default {COUNT})")
    parser.add_argument("--start", type=int, help="the first of them (default: one that nobody has tried)")
    parser.add_argument("--seed", type=int, help="only this one, again")
    parser.add_argument("--alone", action="store_true", help="devices alone: without queues, zones, volumes, quotas and the like")
    parser.add_argument("--teams", action="store_true", help="with queues and gangs that need more than there is")
    parser.add_argument("--mixtures", action="store_true", help="with much of everything at once; zones beside claims")
    parser.add_argument(
        "--crowds", action="store_true", help="instead: gangs that would fit, and leave for each other all the time"
    )
    parser.add_argument("--hands", action="store_true", help="and hands that edit objects while everything runs")
    parser.add_argument("--pods", type=int, help="instead: so many pods that come and go, and what is remembered of them")
    parser.add_argument("--lean", action="store_true", help="with --pods: without kubelets, most pods without devices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop after the tenth seed that goes wrong")
    return parser


def _files(files: list[Path]) -> int:
    wrong = 0
    for file in files:
        outcome = judge(list(documents_of(file)))
        wrong += bool(outcome.failures)
        print(f"{file}: {'; '.join(outcome.kinds) or 'nothing goes wrong'}")
        _tell(outcome)
    return 1 if wrong else 0


def _one(seed: int, flavour: Flavour) -> int:
    documents = flavour.drawn(seed)
    outcome = judge(documents)
    print(f"seed {seed}: {'; '.join(outcome.kinds) or 'nothing goes wrong'}")
    _tell(outcome)
    for kind in outcome.kinds:
        _minimise(seed, kind, documents)
    return 1 if outcome.failures else 0


def _minimise(seed: int, kind: str, documents: list[Document]) -> None:
    path = minimised(seed, kind, documents)
    print(f"{kind}: {path}; run it with: dray simulate {path}, or: python -m tests.simulate.soak {path}", flush=True)


def _tell(outcome: Outcome) -> None:
    for failure in outcome.failures:
        print(f"  {failure.kind}: {failure}")


def _many(asked: argparse.Namespace) -> int:
    start = asked.start if asked.start is not None else int(time.time()) * 1_000_000
    seeds, kinds, wrong, done = iter(range(start, start + asked.count)), Counter[str](), 0, 0
    first: dict[str, int] = {}  # kind -> a seed that goes wrong like that
    began, flavour = time.monotonic(), _flavour(asked)
    for seed, outcome in outcomes(seeds, asked.jobs, flavour):
        done += 1
        if outcome.failures:
            wrong += 1
            kinds.update(outcome.kinds)
            for kind in outcome.kinds:
                first.setdefault(kind, seed)
            _say(f"seed {seed}: {'; '.join(outcome.kinds)} ({outcome.failures[0]})")
            print(f"    again: python -m tests.simulate.soak --seed {seed}{flavour.options}")
            if wrong == 10 and not asked.keep_going:
                print("Stopped: ten seeds went wrong; --keep-going goes on.")
                break
        _progress(done, asked.count, wrong, began)
    _say(f"{done} seeds from {start} in {time.monotonic() - began:.0f} s: {wrong} went wrong")
    for kind, count in kinds.most_common():
        print(f"  {count:6} {kind}")
    if first:
        print("Making one of each kind small; this takes a few minutes …", flush=True)
    for kind, seed in first.items():
        _minimise(seed, kind, flavour.drawn(seed))
    return 1 if wrong else 0


def _progress(done: int, count: int, wrong: int, began: float) -> None:
    if sys.stderr.isatty():
        rate = done / max(time.monotonic() - began, 0.001)
        left = (count - done) / rate / 60
        text = f"{done} of {count} seeds, {wrong} went wrong, {rate:.1f} a second, {left:.0f} min left"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
