"""What somebody may do, made of the rules of the roles that are bound to them.

Always true: a question costs a few set lookups for each rule that names its resource, and nothing for the others; making
rights costs what the rules are long, times at most a constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.access import PolicyRule
from dray.apiserver.authorization.attributes import Attributes

ALL: Final = "*"
MULTIPLIED: Final = 1000  # resources times names of a rule, above which its objects are not listed one by one


class Grant:
    """One rule, ready to be asked. None stands for everything."""

    __slots__ = ("groups", "names", "rule", "urls", "verbs")

    def __init__(self, rule: PolicyRule) -> None:
        self.rule = rule
        self.verbs = _some(rule.verbs)
        self.groups = _some(rule.api_groups)
        self.names = frozenset(rule.resource_names) or None
        self.urls = rule.non_resource_urls

    def places(self) -> Iterable[str | tuple[str, str]]:
        """Where it is looked for: at its resources or, where these are few, at its objects."""
        resources, names = dict.fromkeys(self.rule.resources), self.names
        if names is None or "" in names or len(resources) * len(names) > MULTIPLIED:
            return resources
        return [(resource, name) for resource in resources for name in names]

    def allows(self, wanted: Attributes) -> bool:
        """The resource has been found to match."""
        return (
            (self.verbs is None or wanted.verb in self.verbs)
            and (self.groups is None or wanted.group in self.groups)
            and (self.names is None or wanted.name in self.names)
        )

    def allows_path(self, verb: str, path: str) -> bool:
        return (self.verbs is None or verb in self.verbs) and any(covers_path(url, path) for url in self.urls)


def _some(values: tuple[str, ...]) -> frozenset[str] | None:
    return None if ALL in values else frozenset(values)


def covers_path(owned: str, path: str) -> bool:
    """Whether a path of a rule, which may end in ``*``, stands for ``path``."""
    return owned == path or (owned.endswith(ALL) and path.startswith(owned.rstrip(ALL)))


Granted = tuple[Grant, str]


class Rights:
    """All grants of one user in one place, each with where it comes from; ``problems`` are roles that could not be found."""

    __slots__ = ("_paths", "_resources", "granted", "problems")

    def __init__(self, granted: Iterable[Granted], problems: tuple[str, ...] = ()) -> None:
        self.granted = tuple(granted)
        self.problems = problems
        self._resources: dict[str | tuple[str, str], list[Granted]] = {}
        self._paths: list[Granted] = []
        for found in self.granted:
            for place in found[0].places():
                self._resources.setdefault(place, []).append(found)
            if found[0].urls:
                self._paths.append(found)

    def source(self, wanted: Attributes) -> str | None:
        """Where the right to do this comes from; None when there is none."""
        if wanted.path is not None:
            return next((source for grant, source in self._paths if grant.allows_path(wanted.verb, wanted.path)), None)
        resources, name = self._resources, wanted.name
        matching = (wanted.combined, ALL, f"*/{wanted.subresource}") if wanted.subresource else (wanted.resource, ALL)
        for resource in matching:
            for place in (resource, (resource, name)) if name else (resource,):
                for grant, source in resources.get(place, ()):
                    if grant.allows(wanted):
                        return source
        return None

    @property
    def rules(self) -> list[PolicyRule]:
        return [grant.rule for grant, _ in self.granted]
