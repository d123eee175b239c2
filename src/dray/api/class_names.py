"""The names of extended resources that device classes serve (KEP-5004): the implicit one of each class, and those that they give.

Always true: a resource name is served by the newest class that names it, then by the class whose name sorts first; when that one
goes the next serves it.
"""

from __future__ import annotations

from dray.api.resource import IMPLICIT_RESOURCE_PREFIX, DeviceClass


class ClassNames:
    """Which class serves an extended resource name."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._by_name: dict[str, dict[str, DeviceClass]] = {}

    def put(self, cls: DeviceClass) -> set[str]:
        """The class is now this; answers the resource names that this may concern."""
        concerned = self.remove(cls.metadata.name)
        self._classes[cls.metadata.name] = cls
        for name in _names_of(cls):
            self._by_name.setdefault(name, {})[cls.metadata.name] = cls
            concerned.add(name)
        return concerned

    def remove(self, name: str) -> set[str]:
        known = self._classes.pop(name, None)
        if known is None:
            return set()
        for resource in _names_of(known):
            classes = self._by_name[resource]
            del classes[name]
            if not classes:
                del self._by_name[resource]
        return set(_names_of(known))

    def serving(self, resource: str) -> DeviceClass | None:
        classes = self._by_name.get(resource)
        if not classes:
            return None
        newest = max(cls.metadata.creation_timestamp or "" for cls in classes.values())
        return min(
            (cls for cls in classes.values() if (cls.metadata.creation_timestamp or "") == newest),
            key=lambda cls: cls.metadata.name,
        )

    def explicit(self) -> dict[str, str]:
        """The resource names that classes give themselves, each with the class that serves it."""
        found = {cls.spec.extended_resource_name: None for cls in self._classes.values() if cls.spec.extended_resource_name}
        return {name: serving.metadata.name for name in found if name and (serving := self.serving(name)) is not None}

    def offers(self, resource: str) -> bool:
        return resource in self._by_name


def _names_of(cls: DeviceClass) -> list[str]:
    names = [IMPLICIT_RESOURCE_PREFIX + cls.metadata.name]
    if cls.spec.extended_resource_name:
        names.append(cls.spec.extended_resource_name)
    return names
