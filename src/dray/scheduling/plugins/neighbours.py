"""placeholder replaced below"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.core import Pod
from dray.scheduling.config import Profile
from dray.scheduling.demand import Demand
from dray.scheduling.nodes import NodeInfo
from dray.scheduling.plugins.base import Reasons


class View:
    def refuses(self, info: NodeInfo) -> Reasons | None:
        return None

    def scores(self, infos: Sequence[NodeInfo]) -> list[tuple[int, list[int]]]:
        return []


class Neighbours:
    def view(self, pod: Pod, demand: Demand, profile: Profile) -> View | None:
        return None
