"""What the claims of a pod get on a node, worked out once for all nodes in the same state.

Always true: an answer is kept only for as long as everything that it was worked out from is as it was, and only if it says
nothing that is so on one node alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.reason import Reason
from dray.api.resource import RESULTS_MAX, ResourceClaim
from dray.devices.attempt import Fatal, Pick
from dray.devices.capacity import CapacityError
from dray.devices.demand import Demand
from dray.devices.inventory import Inventory
from dray.devices.ledger import PoolKey
from dray.devices.packing import pack
from dray.devices.problem import Analysis, Option, Problem, RequestProblem
from dray.devices.rating import Rating
from dray.devices.search import BudgetSpent, solve
from dray.devices.selection import OWN, Failure
from dray.devices.views import NodeView

INVALID_POOLS = "invalid resource pools were encountered"


class Answer:
    """A verdict without names: what nodes in the same state share."""

    __slots__ = ("chosen", "error", "node_error", "picks", "rating", "reasons", "scale", "score", "spent", "steps")

    def __init__(self, picks: list[Pick] | None, steps: int) -> None:
        self.picks = picks
        self.steps = steps
        self.error = ""
        self.node_error = False
        # The search was given up.
        self.spent = False
        self.reasons: tuple[Reason, ...] = ()
        # Made when somebody asks, for the scale as it was then.
        self.rating: Rating | None = None
        self.scale = 0
        self.chosen: dict[tuple[int, int], int] = {}
        self.score = 0
        for pick in picks or ():
            number = pick.request.options.index(pick.option)
            self.chosen[pick.request.claim, pick.request.index] = number
        for pick_request in {id(pick.request): pick for pick in picks or ()}.values():
            if len(pick_request.request.options) > 1:
                self.score += 8 - self.chosen[pick_request.request.claim, pick_request.request.index]


class Answers:
    """Steps of a search are ``budget`` at most; trials may have less for a while."""

    def __init__(self, inventory: Inventory, analysis: Analysis, budget: int) -> None:
        self._inventory, self._analysis = inventory, analysis
        self.budget = self._full_budget = budget

    def current(self, demand: Demand) -> Demand:
        if demand.epoch != self._inventory.epoch or len(demand.answers) > 100_000:
            demand.epoch = self._inventory.epoch
            demand.answers.clear()
            demand.refused.clear()
            demand.packed.clear()
        return demand

    def answer(self, view: NodeView, demand: Demand, claims: Sequence[ResourceClaim]) -> Answer:
        self.current(demand)
        state = self._inventory.state(view)
        found = demand.answers.get(state)
        if isinstance(found, Answer):
            return found
        answer = self.solve(view, demand, claims)
        # Other errors name devices or pools of this node, so they are not shared; nor is a trial that was cut short.
        if answer.error in ("", INVALID_POOLS) or (answer.spent and answer.steps == self._full_budget):
            demand.answers[state] = answer
            if answer.picks is None:
                demand.refused.add(state)
        return answer

    def packed(self, view: NodeView, demand: Demand, answer: Answer) -> Answer:
        """The same answer with devices that waste less, where there are such."""
        if answer.picks is None:
            return answer
        state = self._inventory.state(view)
        found = demand.packed.get(state)
        if not isinstance(found, Answer):
            picks = pack(self._analysis.problem(demand, view.layout), view, answer.picks, self.budget)
            found = demand.packed[state] = answer if picks is answer.picks else Answer(picks, answer.steps)
        return found

    def solve(self, view: NodeView, demand: Demand, claims: Sequence[ResourceClaim]) -> Answer:
        problem = self._analysis.problem(demand, view.layout)
        if problem.wants_everything:
            refusal = self._check_everything(view, problem, claims)
            if refusal is not None:
                return refusal
        try:
            solution = solve(problem, view, self.budget)
        except Fatal as fatal:
            return self._fatal(view, claims, fatal)
        except BudgetSpent:
            answer = Answer(None, self.budget)
            answer.spent = True
            answer.error = f"search given up after {self.budget} steps"
            answer.node_error = True
            return answer
        answer = Answer(solution.picks, solution.steps)
        if solution.picks is None and view.invalid:
            answer.error = INVALID_POOLS
            answer.node_error = True
        return answer

    def _check_everything(self, view: NodeView, problem: Problem, claims: Sequence[ResourceClaim]) -> Answer | None:
        """All needs every pool to be readable, and every device that it looks at."""
        least: dict[int, int] = {}
        for request in problem.requests:
            claim = claims[request.claim].key
            for option in request.options:
                if not option.alternative.everything:
                    continue
                refusal = self._unreadable(view, option, f"claim {claim}, request {option.alternative.short_name}")
                if isinstance(refusal, int):
                    return self._fatal(view, claims, Fatal(request, option, refusal, option.failures[refusal]))
                if refusal is not None:
                    return refusal
            before = least.get(request.claim, 0)
            if request.least > RESULTS_MAX - before:
                return self._over_limit(claim, problem, request, before)
            least[request.claim] = before + request.least
        return None

    def _unreadable(self, view: NodeView, option: Option, where: str) -> Answer | int | None:
        """What All meets first, pool by pool as upstream goes: a pool, or the position of a device, that it cannot read."""
        layout = view.layout
        position = next((each for each in layout.all_order if option.poison >> each & 1), None)
        broken = [(key, "is currently being updated", "PoolIncomplete") for key in view.incomplete]
        broken += [(key, "is currently invalid", "PoolInvalid") for key, _ in view.invalid]
        if not broken:
            return position
        if position is not None and not layout.conditioned >> position & 1:
            device = view.key(position)
            if (device.driver, device.pool) < min(broken)[0]:
                return position
        (driver, pool), what, code = min(broken)
        answer = Answer(None, 0)
        answer.error = f"{where}: asks for all devices, but resource pool {driver}/{pool} {what}"
        answer.node_error = True
        if code == "PoolIncomplete":
            answer.reasons = (self.incomplete(view, (driver, pool)),)
        else:
            answer.reasons = (self.invalid(view, (driver, pool)),)
        return answer

    def invalid(self, view: NodeView, key: PoolKey) -> Reason:
        data = {"driver": key[0], "pool": key[1], "detail": dict(view.invalid)[key]}
        return Reason("PoolInvalid", f"node/{view.name}", data)

    def incomplete(self, view: NodeView, key: PoolKey) -> Reason:
        published, expected = self._inventory.completeness(key)
        data = {"driver": key[0], "pool": key[1], "published": published, "expected": expected}
        return Reason("PoolIncomplete", f"node/{view.name}", data)

    def _over_limit(self, claim: str, problem: Problem, request: RequestProblem, before: int) -> Answer:
        name = problem.demand.claims[request.claim].requests[request.index].name
        answer = Answer(None, 0)
        answer.error = (
            f"claim {claim}, request {name}: adding {request.least} devices exceeds the claim limit of {RESULTS_MAX}, "
            f"with {before} already accounted for"
        )
        data = {"request": name, "needed": before + request.least, "limit": RESULTS_MAX}
        answer.reasons = (Reason("TooManyDevices", f"claim/{claim}", data),)
        return answer

    def _fatal(self, view: NodeView, claims: Sequence[ResourceClaim], fatal: Fatal) -> Answer:
        answer = Answer(None, 0)
        device = str(view.key(fatal.position))
        claim = claims[fatal.request.claim].key
        where = f"claim {claim}, request {fatal.option.alternative.short_name}"
        data: dict[str, object] = {"device": device, "claim": claim, "request": fatal.option.alternative.name}
        code = "SelectorError"
        if isinstance(fatal.failure, Failure):
            failure = fatal.failure
            if failure.source.owner == OWN:
                failure = failure._replace(source=failure.source._replace(owner=f"claim {claim}"))
            answer.error = failure.text(device)
            data |= {"expression": failure.source.expression, "source": failure.source.owner, "error": failure.message}
            if failure.compile:
                data["stage"] = "compile"
        elif isinstance(fatal.failure, CapacityError):
            answer.error = f"{where}: checking capacity for device {device}: {fatal.failure}"
            code, data["detail"] = "InvalidRequest", str(fatal.failure)
        elif fatal.failure == "constraint":
            answer.error = f"{where}: cannot add device {device} because a claim constraint would not be satisfied"
            code = "ConstraintViolated"
        else:
            answer.error = str(fatal.failure).replace("{device}", device)
            data["error"] = answer.error
        subject = f"device/{device}" if code == "ConstraintViolated" else f"claim/{claim}"
        answer.reasons = (Reason(code, subject, data),)
        return answer
