"""YAML bodies. Apart from the rest because few requests have one and the reader takes long to load.

Read with libyaml where it is there, as Go's reader does: tabs between the tokens of flow style are fine.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dray.api.yaml_text import Loader, refuse_deep_nesting
from dray.apiserver.errors import bad_request


class _Loader(Loader):
    """Keys that are given again are noted with their line."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                self.repeated.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The object, and where a key was given that was there already (the last one counts)."""
    try:
        refuse_deep_nesting(body)
        _refuse_aliases(body)
        loader = _Loader(body)
        # Through JSON, so that what only YAML has is refused.
        return msgspec.json.decode(msgspec.json.encode(loader.get_single_data())), loader.repeated
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise bad_request(f"error parsing YAML: {str(error)[:400]}") from error


def _refuse_aliases(body: bytes) -> None:
    """A few bytes of them can stand for gigabytes."""
    if b"*" in body and any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(body, Loader)):
        raise yaml.YAMLError("aliases are not supported")
