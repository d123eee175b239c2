"""YAML bodies. Apart from the rest because few requests have one and the reader takes long to load.

Read with libyaml where it is there, as Go's reader does: tabs between the tokens of flow style are fine.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from dray.apiserver.errors import bad_request

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(body: bytes) -> Any:
    try:
        _refuse_aliases(body)
        # Through JSON, so that dates and other YAML types become what they were written as or are refused.
        return msgspec.json.decode(msgspec.json.encode(yaml.load(body, _LOADER)))
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise bad_request(f"error parsing YAML: {str(error)[:400]}") from error


def _refuse_aliases(body: bytes) -> None:
    """A few bytes of them can stand for gigabytes."""
    if b"*" in body and any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(body, _LOADER)):
        raise yaml.YAMLError("aliases are not supported")
