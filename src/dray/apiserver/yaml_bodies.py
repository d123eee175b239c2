"""YAML bodies. Apart from the rest because few requests have one and the reader takes long to load."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dray.apiserver.errors import bad_request


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few bytes of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def read_yaml(body: bytes) -> Any:
    try:
        # Through JSON, so that dates and other YAML types become what they were written as or are refused.
        return msgspec.json.decode(msgspec.json.encode(yaml.load(body, _Loader)))
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise bad_request(f"error parsing YAML: {str(error)[:400]}") from error
