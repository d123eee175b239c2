"""The kinds that definitions bring, as a shell follows them: for deciders that look after objects of every kind.

A decider that names a kind that is not served need do nothing: it is an empty one until it is (see ``reflector``). One that
cares for kinds that nobody can name beforehand, as garbage collection does, is a ``Follower``: a shell tells it of each kind that
comes and goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dray.api.extensions import CustomResourceDefinition
from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.cluster.port import Change
from dray.cluster.world import World


@runtime_checkable
class Follower(Protocol):
    """A decider that looks after every kind. The World has the kind before ``follow`` and until after ``unfollow``."""

    def follow(self, kind: Kind, api_versions: Sequence[str]) -> None: ...

    def unfollow(self, kind: Kind) -> None: ...


class Followed(NamedTuple):
    """A kind to mirror, and all versions that objects may name it in. ``own`` is false for one that is mirrored anyway."""

    kind: Kind
    api_versions: tuple[str, ...]
    own: bool = True


class CustomKinds:
    """Which kinds are followed, by the definition that brings each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._followed: dict[str, Followed] = {}

    def changed(self, change: Change) -> tuple[Followed | None, Followed | None]:
        """What to follow no more, and what to follow, after a change of a definition."""
        if change.kind != CUSTOM_RESOURCE_DEFINITIONS:
            return None, None
        name = change.object.metadata.name
        wanted = self._served(change.new)
        before = self._followed.get(name)
        if wanted == before:
            return None, None
        if wanted is None:
            self._followed.pop(name, None)
        else:
            self._followed[name] = wanted
        return before, wanted

    def _served(self, definition: object) -> Followed | None:
        if not isinstance(definition, CustomResourceDefinition) or not definition.established:
            return None
        spec = definition.spec
        served = [version for version in spec.versions if version.served]
        if not served:
            return None
        versions = tuple(f"{spec.group}/{version.name}" for version in served)
        known = self._mirrored(spec.group, spec.names.plural)
        if known is not None:
            return Followed(known, versions, own=False)
        chosen = next((version for version in served if version.storage), served[0])
        kind = Kind(spec.group, chosen.name, spec.names.plural, spec.names.kind, spec.scope == "Namespaced")
        return Followed(kind, versions)

    def _mirrored(self, group: str, plural: str) -> Kind | None:
        """The kind as a decider named it, unless it is one of ours."""
        ours = {each.kind for each in self._followed.values() if each.own}
        return next(
            (kind for kind in self._world.kinds if (kind.group, kind.plural) == (group, plural) and kind not in ours), None
        )
