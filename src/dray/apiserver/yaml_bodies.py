"""YAML bodies. Apart from the rest because few requests have one and the reader takes long to load."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dray.apiserver.errors import bad_request


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few bytes of them can stand for gigabytes. Keys that are given again are noted with their line."""

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

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def read_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The object, and where a key was given that was there already (the last one counts)."""
    try:
        loader = _Loader(body)
        # Through JSON, so that dates and other YAML types become what they were written as or are refused.
        return msgspec.json.decode(msgspec.json.encode(loader.get_single_data())), loader.repeated
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise bad_request(f"error parsing YAML: {str(error)[:400]}") from error
