"""CustomResourceDefinitions, as far as Dray looks into them: which kind one brings, and whether it is served."""

from __future__ import annotations

import msgspec

from dray.api.meta import Condition, Object, Struct


class DefinedVersion(Struct):
    name: str = ""
    served: bool = False
    storage: bool = False


class DefinedNames(Struct):
    kind: str = ""
    plural: str = ""


class DefinitionSpec(Struct):
    group: str = ""
    scope: str = ""
    names: DefinedNames = msgspec.field(default_factory=DefinedNames)
    versions: tuple[DefinedVersion, ...] = ()


class DefinitionStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(Object):
    spec: DefinitionSpec = msgspec.field(default_factory=DefinitionSpec)
    status: DefinitionStatus = msgspec.field(default_factory=DefinitionStatus)

    @property
    def established(self) -> bool:
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions)
