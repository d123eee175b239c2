"""What a plugin is: what a pod needs in, functions of a node out.

A plugin says its name, its reason codes (words, what wakes who waits for it, whether eviction can cure it), and what it makes
of a pod: a check, a score, what it posts, and what these read. What is read decides how long an answer holds: nodes in the
same state share an answer that reads nothing but the node; one that reads the cluster holds while its ``stamp`` does; one
that reads other pods is asked for each pod anew. A plugin that has nothing to say for a pod makes None and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, Protocol, runtime_checkable

from dray.api.codes import CODES, Code
from dray.api.core import Pod
from dray.api.reason import Reason
from dray.books.demand import Demand
from dray.books.journal import Account
from dray.books.nodes import NodeInfo
from dray.scheduling.config import Profile

Reasons = tuple[Reason, ...]
Check = Callable[[NodeInfo], Reasons | None]
"""None where the node will do, else why not."""
Measure = Callable[[NodeInfo], int]
Compare = Callable[[Sequence[NodeInfo]], list[int]]
"""One score 0..100 for each node of those that are compared."""
Normalize = Literal["none", "max", "reverse"]
Posts = Callable[[NodeInfo], list[tuple[Account, object]]]
"""What the pod takes on the node beside node resources and devices: an entry for each account, under the pod's uid."""
Notes = Callable[[NodeInfo], Mapping[str, str]]
"""Annotations that the pod is bound to the node with."""
State = Callable[[NodeInfo], Hashable]
"""All that is read of a node beyond what ``node`` stands for: nodes for which it is equal share answers."""
Judged = tuple[Reasons | None, int, int]
"""Why the node's devices will not do; else their rank, still to be normalized, and hundredths of points for the rest."""
Judge = Callable[[NodeInfo], Judged]

Reads = Literal["node", "labels", "devices", "zones", "pods", "volumes", "cluster"]
"""``node``: what it offers, its taints and what is requested of it. The rest tells nodes apart that are in the same state."""

MAX_SCORE: Final = 100


class PodShape(Protocol):
    """What a plugin may ask of the pod that is to be placed; the scheduler gives its ``CycleState``."""

    @property
    def pod(self) -> Pod: ...

    @property
    def demand(self) -> Demand: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def packs_devices(self) -> bool:
        """Whether nodes are chosen so that their devices are packed."""
        ...


class Compiled:
    """What a plugin makes of one pod. ``measure`` with ``normalize`` is a score of one node, ``compare`` one of several that
    are compared; ``names`` are the only nodes that will do, where they are known."""

    __slots__ = ("check", "compare", "judge", "measure", "names", "normalize", "notes", "posts", "reads", "stamp", "state")

    def __init__(
        self,
        reads: Sequence[Reads] = ("node",),
        *,
        check: Check | None = None,
        measure: Measure | None = None,
        normalize: Normalize = "none",
        compare: Compare | None = None,
        judge: Judge | None = None,
        names: frozenset[str] | None = None,
        stamp: Callable[[], Hashable] | None = None,
        posts: Posts | None = None,
        notes: Notes | None = None,
        state: State | None = None,
    ) -> None:
        self.reads = frozenset(reads)
        self.check, self.measure, self.normalize, self.compare = check, measure, normalize, compare
        self.judge, self.names, self.stamp, self.posts = judge, names, stamp, posts
        self.notes, self.state = notes, state


class Plugin(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def codes(self) -> Mapping[str, Code]: ...

    def compile(self, shape: PodShape) -> Compiled | None: ...


@runtime_checkable
class Signs(Protocol):
    """A plugin that reads more of a pod than its ``demand``: pods share answers only where it says the same of them."""

    def sign(self, pod: Pod) -> Hashable: ...


def codes_of(plugin: str) -> dict[str, Code]:
    """The codes of one of Dray's own plugins."""
    return {code: found for code, found in CODES.items() if plugin in found.plugins}


class Score:
    """One score of a profile, compiled for a pod."""

    __slots__ = ("measure", "name", "normalize", "weight")

    def __init__(self, name: str, weight: int, measure: Measure, normalize: Normalize = "none") -> None:
        self.name = name
        self.weight = weight
        self.measure = measure
        self.normalize = normalize


@lru_cache(maxsize=4096)
def because(code: str, **data: str | int) -> Reasons:
    """The shared refusal for a code and its details; the node is known from where it is found."""
    return (Reason(code, "", dict(data)),)


def normalized(raw: int, highest: int, how: Normalize) -> int:
    """A raw score as 0..100 among candidates whose highest raw score is ``highest``."""
    if how == "none":
        return raw
    if highest == 0:
        return MAX_SCORE if how == "reverse" else 0
    scaled = MAX_SCORE * raw // highest
    return MAX_SCORE - scaled if how == "reverse" else scaled
