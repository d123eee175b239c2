"""One trial on one node: what the ledger says is in use, plus what this trial has picked so far, with exact undo.

``pick`` applies upstream's checks in upstream's order and either takes the device completely or leaves no trace;
``undo_to`` takes back the latest picks. Nothing outside the attempt is ever changed.
"""

from __future__ import annotations

from dray.devices.capacity import Consumes
from dray.devices.pools import GroupState, PoolContent
from dray.devices.problem import Atoms, Option, Problem, RequestProblem, Values
from dray.devices.views import NodeView


class Fatal(Exception):
    """A search looked at a device on which an expression or a capacity request cannot be evaluated, as upstream gives up."""

    def __init__(self, request: RequestProblem, option: Option, position: int, failure: object) -> None:
        super().__init__(str(failure))
        self.request = request
        self.option = option
        self.position = position
        self.failure = failure


class Pick:
    """One device taken for one request, and what it changed."""

    __slots__ = ("constraints", "consumes", "counted", "groups", "marked", "option", "position", "request", "shared")

    def __init__(self, request: RequestProblem, option: Option, position: int) -> None:
        self.request = request
        self.option = option
        self.position = position
        self.marked = False
        self.shared = False
        self.counted = False
        self.consumes: Consumes | None = None
        self.groups: list[tuple[tuple[int, int], GroupState | None]] = []
        self.constraints: list[tuple[int, State]] = []


class State:
    """A constraint so far: how many devices it covers and their values (common ones for match, all for distinct)."""

    __slots__ = ("atoms", "count")

    def __init__(self, count: int = 0, atoms: Atoms = frozenset()) -> None:
        self.count = count
        self.atoms = atoms

    def allowed(self, values: Values, *, match: bool) -> int:
        """The positions that could still join."""
        if not self.count:
            return values.present
        if match:
            return values.any_of(self.atoms)
        return values.present & ~values.any_of(self.atoms) & ~values.unknown

    def joined(self, atoms: Atoms, *, match: bool) -> State:
        if not self.count or not match:
            return State(self.count + 1, self.atoms | atoms)
        return State(self.count + 1, self.atoms & atoms)


class Attempt:
    """The state of a search on one node."""

    __slots__ = (
        "_over",
        "base_shared",
        "base_taken",
        "claim_taken",
        "group_states",
        "picks",
        "problem",
        "shares",
        "states",
        "taken",
        "used",
        "view",
    )

    def __init__(self, problem: Problem, view: NodeView) -> None:
        self.problem = problem
        self.view = view
        self.base_taken = view.taken()
        self.base_shared = view.shared()
        self.taken = 0
        self.claim_taken = [0] * len(problem.constraints)
        self.shares: dict[int, list[dict[str, int]]] = {}
        self.used: dict[tuple[int, int], int] = {}
        self.group_states: dict[tuple[int, int], GroupState] = {}
        self.states = [[State() for _ in constraints] for constraints in problem.constraints]
        self.picks: list[Pick] = []
        self._over: int | None = None

    def candidates(self, request: RequestProblem, option: Option) -> int:
        """Positions that are not in use and that the constraints still allow; counters, groups and shares are not asked."""
        mask = option.usable
        if option.alternative.admin:
            mask &= ~self.claim_taken[request.claim]
        else:
            mask &= ~(self.base_taken | self.taken)
        constraints = self.problem.constraints[request.claim]
        for index, values in option.values.items():
            state = self.states[request.claim][index]
            if state.count:
                mask &= state.allowed(values, match=constraints[index].match)
        return mask

    def visible(self, request: RequestProblem, option: Option) -> int:
        """Like candidates, but with the positions that end the search with an error."""
        mask = option.usable | option.poison
        if option.alternative.admin:
            return mask & ~self.claim_taken[request.claim]
        return mask & ~(self.base_taken | self.taken)

    def asked_of_constraints(self, option: Option) -> int:
        """For All: the positions at which a constraint can make it an error; it ends at the first that cannot be had."""
        mask = 0
        blocked = 0 if option.alternative.admin else self.base_taken
        for position in option.listed if option.values else ():
            bit = 1 << position
            if blocked & bit or not option.admissible & bit:
                break
            mask |= bit
        return mask

    # ------------------------------------------------------------------------------------------------------- picking

    def pick(self, request: RequestProblem, option: Option, position: int, *, must: bool = False) -> bool:
        """Take the device. ``must`` (All): a constraint that refuses it is an error, as upstream has it."""
        bit = 1 << position
        if option.poison & bit:
            raise Fatal(request, option, position, option.failures[position])
        kind = self.problem.layout.kinds[position]
        if self._in_use(request, option, bit, kind.multiple) or not option.admissible & bit:
            return False
        pick = Pick(request, option, position)
        # A device that is dedicated now may have shares from before; only admin access comes so far.
        shared = kind.multiple or bool(self.base_shared & bit)
        if shared and not must and not self._has_room(option, position):
            return False
        further_share = kind.multiple and bool(self.base_shared & bit or position in self.shares)
        if kind.consumes and not (self._rejoin(pick) if further_share else self._draw(pick, bit)):
            return False
        if option.values and not self._constrain(pick, must):
            self._undo(pick)
            return False
        # For All upstream asks about room only now, after a constraint had its chance to make it an error.
        if shared and must and not self._has_room(option, position):
            self._undo(pick)
            return False
        self._mark(pick, bit, kind.multiple)
        self.picks.append(pick)
        return True

    def _in_use(self, request: RequestProblem, option: Option, bit: int, multiple: bool) -> bool:
        if option.alternative.admin:
            return not multiple and bool(self.claim_taken[request.claim] & bit)
        return bool((self.base_taken | self.taken) & bit)

    def _has_room(self, option: Option, position: int) -> bool:
        takes = option.consumes.get(position)
        return takes is None or takes.room(self.view.consumed(position), self.attempted(position)) is None

    def attempted(self, position: int) -> dict[str, int] | None:
        """Capacity that this attempt's own shares of the device use."""
        shares = self.shares.get(position)
        if not shares:
            return None
        total: dict[str, int] = {}
        for share in shares:
            for name, amount in share.items():
                total[name] = total.get(name, 0) + amount
        return total

    def _draw(self, pick: Pick, bit: int) -> bool:
        """Join the groups and charge the counters of the device's counter sets, or neither."""
        layout = self.problem.layout
        part, counters = layout.consumption[pick.position]
        content = self.view.contents[part]
        if self.overcommitted() & bit:
            return False
        if not self._join(pick, part, content):
            return False
        used = self.used
        available = content.available
        for counter, amount in counters:
            if available[counter] - used.get((part, counter), 0) < amount:
                self._undo(pick)
                return False
        for counter, amount in counters:
            used[part, counter] = used.get((part, counter), 0) + amount
        pick.counted = True
        return True

    def _join(self, pick: Pick, part: int, content: PoolContent) -> bool:
        """Narrow the groups of the device's counter sets to those that it has; if it has none of them, nothing changes."""
        for number, groups in self.problem.layout.groups[pick.position]:
            key = (part, number)
            state = self.group_states.get(key)
            before = state if state is not None else content.groups.get(number)
            if before is not None and not before.admits(groups):
                self._undo(pick)
                return False
            pick.groups.append((key, state))
            self.group_states[key] = (before if before is not None else GroupState()).joined(groups)
        return True

    def _rejoin(self, pick: Pick) -> bool:
        """A further share is recorded with the groups that are published now, which narrow what may follow."""
        content, _ = self.view.place(pick.position)
        return self._join(pick, self.problem.layout.consumption[pick.position][0], content)

    def rejoins(self, position: int) -> bool:
        """Whether a further share of a device goes with what is in use: its groups may have changed since."""
        content, _ = self.view.place(position)
        return self._admitted(position, content)

    def _admitted(self, position: int, content: PoolContent) -> bool:
        layout = self.problem.layout
        part, _ = layout.consumption[position]
        for number, groups in layout.groups[position]:
            state = self.group_states.get((part, number)) or content.groups.get(number)
            if state is not None and not state.admits(groups):
                return False
        return True

    def could_draw(self, position: int) -> bool:
        """Whether the device's counter sets would admit it now, by counters and by groups."""
        layout = self.problem.layout
        bit = 1 << position
        if layout.kinds[position].multiple and (self.base_shared & bit or position in self.shares):
            return self.rejoins(position)
        part, counters = layout.consumption[position]
        content = self.view.contents[part]
        if self.overcommitted() & bit:
            return False
        if not self._admitted(position, content):
            return False
        return all(content.available[counter] - self.used.get((part, counter), 0) >= amount for counter, amount in counters)

    def overcommitted(self) -> int:
        if self._over is None:
            self._over = self.view.overcommitted()
        return self._over

    def _constrain(self, pick: Pick, must: bool) -> bool:
        constraints = self.problem.constraints[pick.request.claim]
        states = self.states[pick.request.claim]
        bit = 1 << pick.position
        for index, values in pick.option.values.items():
            if pick.position in values.failures:
                raise Fatal(pick.request, pick.option, pick.position, values.failures[pick.position])
            state = states[index]
            match = constraints[index].match
            if not state.allowed(values, match=match) & bit:
                if must:
                    raise Fatal(pick.request, pick.option, pick.position, "constraint")
                return False
            pick.constraints.append((index, state))
            states[index] = state.joined(values.atoms[pick.position], match=match)
        return True

    def _mark(self, pick: Pick, bit: int, multiple: bool) -> None:
        if multiple:
            takes = pick.option.consumes.get(pick.position)
            pick.consumes = takes
            pick.shared = True
            self.shares.setdefault(pick.position, []).append(takes.amounts if takes is not None else {})
        else:
            # A bit that another claim of this attempt marked before (admin access) stays that claim's to clear.
            pick.marked = not self.taken & bit
            self.taken |= bit
            self.claim_taken[pick.request.claim] |= bit

    # --------------------------------------------------------------------------------------------------------- undo

    def undo_to(self, length: int) -> None:
        while len(self.picks) > length:
            pick = self.picks.pop()
            self._unmark(pick)
            self._undo(pick)

    def _unmark(self, pick: Pick) -> None:
        bit = 1 << pick.position
        if pick.shared:
            shares = self.shares[pick.position]
            shares.pop()
            if not shares:
                del self.shares[pick.position]
            return
        if pick.marked:
            self.taken &= ~bit
        self.claim_taken[pick.request.claim] &= ~bit

    def _undo(self, pick: Pick) -> None:
        for index, state in reversed(pick.constraints):
            self.states[pick.request.claim][index] = state
        if pick.counted:
            part, counters = self.problem.layout.consumption[pick.position]
            for counter, amount in counters:
                self.used[part, counter] -= amount
        for key, before in reversed(pick.groups):
            if before is None:
                del self.group_states[key]
            else:
                self.group_states[key] = before
