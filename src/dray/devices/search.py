"""The search: upstream's first solution, found without upstream's explosions.

The order is upstream's: claims, requests, alternatives, then devices by position, with devices that need no binding
conditions before those that do. First a plain dive, which is all that most pods need. If that does not end soon, the
problem is cut into independent components and each is searched again with bounds, symmetry and a memory of failed states
(``dray.devices.bounds``). Those only ever skip what cannot contain a solution, so the first solution stays the same. Where
looking at a device can end in an error nothing is skipped that leads there, because upstream would look.

Work is counted in steps, one for each device tried; a search that exceeds its budget is given up and says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.resource import RESULTS_MAX
from dray.devices.attempt import Attempt, Pick
from dray.devices.bounds import Bounds, components
from dray.devices.problem import Option, Problem, RequestProblem
from dray.devices.views import NodeView

BUDGET = 20_000
# Dead ends after which the plain dive is given up for the careful search.
PATIENCE = 24


class BudgetSpent(Exception):
    """The search was given up: neither a solution nor a proof that there is none was found within the budget."""


class Solution:
    """What a search found: picks in upstream's order, or None; ``steps`` counts the devices tried."""

    __slots__ = ("picks", "steps")

    def __init__(self, picks: list[Pick] | None, steps: int) -> None:
        self.picks = picks
        self.steps = steps


def solve(problem: Problem, view: NodeView, budget: int) -> Solution:
    """The first solution, or none. Raises Fatal and BudgetSpent."""
    attempt = Attempt(problem, view)
    requests = problem.requests
    safe = _safe(attempt) if problem.faithful else len(requests)
    if not _has_chance(attempt, safe):
        return Solution(None, 0)
    search = Search(attempt, requests, budget, patience=PATIENCE, safe=safe)
    try:
        return Solution(attempt.picks if search.run() else None, search.steps)
    except OutOfPatience:
        attempt.undo_to(0)
    if safe == len(requests):
        return _solve_apart(problem, attempt, budget, search.steps)
    careful = Search(attempt, requests, budget - search.steps, bounds=Bounds(attempt, requests, safe), safe=safe)
    return Solution(attempt.picks if careful.run() else None, search.steps + careful.steps)


def _safe(attempt: Attempt) -> int:
    """How many requests come before the first that can end the search with an error as things are."""
    for number, request in enumerate(attempt.problem.requests):
        if any(_risky(attempt, option) for option in request.options):
            return number
    return len(attempt.problem.requests)


def _risky(attempt: Attempt, option: Option) -> bool:
    if option.alternative.everything:
        return bool(attempt.asked_of_constraints(option))
    # Nobody looks at a device that is in use.
    seen = -1 if option.alternative.admin else ~attempt.base_taken
    failing = option.poison | sum(1 << position for values in option.values.values() for position in values.failures)
    return bool(failing & seen)


def _solve_apart(problem: Problem, attempt: Attempt, budget: int, steps: int) -> Solution:
    """Each independent component by itself; a component without a solution ends it."""
    done = 0
    for requests in components(problem):
        search = Search(attempt, requests, budget - steps, bounds=Bounds(attempt, requests))
        found = search.run(done)
        steps += search.steps
        if not found:
            return Solution(None, steps)
        done = len(attempt.picks)
    order = {id(request): number for number, request in enumerate(problem.requests)}
    # Sorting is stable: within a request the picks stay in the order in which they were made.
    return Solution(sorted(attempt.picks, key=lambda pick: order[id(pick.request)]), steps)


def _has_chance(attempt: Attempt, safe: int) -> bool:
    """Counting alone: does every request before one that can end in an error have an alternative with enough devices?"""
    for request in attempt.problem.requests[:safe]:
        if not any(
            option.count > 0 and attempt.candidates(request, option).bit_count() >= option.count
            if option.alternative.everything
            else attempt.candidates(request, option).bit_count() >= option.count
            for option in request.options
        ):
            return False
    return True


class OutOfPatience(Exception):
    """The plain dive met too many dead ends."""


class Frame:
    """A choice that can be taken back: an alternative (``option`` is None) or the device for one slot."""

    __slots__ = ("key", "mark", "need", "number", "option", "options", "remaining")

    def __init__(self, number: int, mark: int, options: int) -> None:
        self.number = number
        self.mark = mark
        # For a choice of alternative: the index of the next one to try.
        self.options = options
        self.option: Option | None = None
        self.remaining = 0
        self.need = 0
        self.key: object = None


class Search:
    """Depth first over ``requests``, without recursion, so that any number of devices can be asked for."""

    def __init__(
        self,
        attempt: Attempt,
        requests: Sequence[RequestProblem],
        budget: int,
        *,
        patience: int | None = None,
        bounds: Bounds | None = None,
        safe: int | None = None,
    ) -> None:
        """``safe``: how many of the requests come before the first that can end in an error; all if not given."""
        self.attempt = attempt
        self.requests = requests
        self.steps = 0
        self._budget = budget
        self._patience = patience
        self._bounds = bounds
        self._safe = len(requests) if safe is None else safe
        self._last = attempt.problem.layout.last
        self._stack: list[Frame] = []

    def run(self, floor: int = 0) -> bool:
        """True when every request is satisfied; the picks are then in the attempt."""
        stack = self._stack
        if self._enter(0, floor):
            return True
        while stack:
            frame = stack[-1]
            self.attempt.undo_to(frame.mark)
            done = self._next_option(frame) if frame.option is None else self._next_device(frame)
            if done:
                return True
        return False

    def _enter(self, number: int, mark: int) -> bool:
        """Go on to a request; True when there is none left."""
        if number == len(self.requests):
            return True
        self._stack.append(Frame(number, mark, 0))
        return False

    def _fail(self, frame: Frame) -> bool:
        self._stack.pop()
        if self._bounds is not None and frame.key is not None:
            self._bounds.failed.add(frame.key)
        if self._patience is not None:
            self._patience -= 1
            if self._patience < 0:
                raise OutOfPatience
        return False

    def _next_option(self, frame: Frame) -> bool:
        request = self.requests[frame.number]
        if frame.options == 0 and self._bounds is not None and not self._promising(frame):
            return self._fail(frame)
        while frame.options < len(request.options):
            option = request.options[frame.options]
            frame.options += 1
            if self._too_many(request, option):
                continue
            if option.alternative.everything:
                if option.count and self._take_all(request, option):
                    return self._enter(frame.number + 1, len(self.attempt.picks))
                self.attempt.undo_to(frame.mark)
            elif option.count == 0:
                return self._enter(frame.number + 1, len(self.attempt.picks))
            elif self._open(frame.number, request, option, option.count, -1):
                return False
        return self._fail(frame)

    def _promising(self, frame: Frame) -> bool:
        assert self._bounds is not None
        frame.key = self._bounds.key(frame.number, -1, 0, 0)
        if frame.key in self._bounds.failed:
            return False
        self.steps += 1
        return self._bounds.promising(frame.number)

    def _too_many(self, request: RequestProblem, option: Option) -> bool:
        """A claim may hold only so many devices, and the later requests need some too."""
        results = sum(1 for pick in self.attempt.picks if pick.request.claim == request.claim) if self.attempt.picks else 0
        after = request.least_after if self._safe == len(self.requests) else 0
        return results + option.count + after > RESULTS_MAX

    def _take_all(self, request: RequestProblem, option: Option) -> bool:
        for position in option.listed:
            self._step()
            if not self.attempt.pick(request, option, position, must=True):
                return False
        return True

    def _open(self, number: int, request: RequestProblem, option: Option, need: int, last: int) -> bool:
        """Push the choice of a device for the next slot, unless there is none."""
        if number >= self._safe:
            mask = self.attempt.visible(request, option) & self._after(last)
        else:
            mask = self.attempt.candidates(request, option) & self._after(last)
            if mask.bit_count() < need or not self._distinct_enough(request, option, mask, need):
                return False
        frame = Frame(number, len(self.attempt.picks), 0)
        frame.option = option
        frame.remaining = mask
        frame.need = need
        if self._bounds is not None:
            frame.key = self._bounds.key(number, request.options.index(option), need, mask)
            if frame.key in self._bounds.failed or (last >= 0 and not self._bounds.forward(number)):
                return False
        self._stack.append(frame)
        return True

    def _distinct_enough(self, request: RequestProblem, option: Option, mask: int, need: int) -> bool:
        """Each device of a distinctAttribute constraint uses up at least one value."""
        constraints = self.attempt.problem.constraints[request.claim]
        for index, values in option.values.items():
            if not constraints[index].match and need > 1:
                different = sum(1 for positions in values.masks.values() if positions & mask)
                if different + bool(values.unknown & mask) < need:
                    return False
        return True

    def _after(self, last: int) -> int:
        """Positions that come later in the order in which devices are tried: plain ones, then those with binding conditions."""
        if last < 0:
            return -1
        later = -2 << last
        lagging = self._last
        if not lagging:
            return later
        return later & lagging if lagging >> last & 1 else (later & ~lagging) | lagging

    def _next_device(self, frame: Frame) -> bool:
        request = self.requests[frame.number]
        option = frame.option
        assert option is not None
        while frame.remaining:
            if self._bounds is not None and frame.number < self._safe and frame.remaining.bit_count() < frame.need:
                break
            bits = frame.remaining & ~self._last or frame.remaining
            low = bits & -bits
            position = low.bit_length() - 1
            frame.remaining ^= low
            if self._bounds is not None:
                # An equal device that fails here makes this one's failure certain; the mask is dropped before trying
                # because a success never comes back.
                same = self._bounds.same(position)
            else:
                same = 0
            self._step()
            if self.attempt.pick(request, option, position):
                if same:
                    frame.remaining &= ~same
                if frame.need == 1:
                    return self._enter(frame.number + 1, len(self.attempt.picks))
                if self._open(frame.number, request, option, frame.need - 1, position):
                    return False
                self.attempt.undo_to(frame.mark)
            elif same:
                frame.remaining &= ~same
        return self._fail(frame)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._budget:
            raise BudgetSpent
