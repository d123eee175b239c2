"""How deep YAML may be nested. The C loader recurses without a bound: a few thousand brackets would end the process."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

DEPTH_MAX: Final = 200
# Only a text that has one of these can be nested deeper: many brackets, marks of items in a row, or that much white space.
_MARKS: Final = re.compile(rb"(?:[-?:] +){%d}|\n {%d}" % (DEPTH_MAX // 4, DEPTH_MAX))
_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refuse_deep_nesting(text: str | bytes) -> None:
    """Raises RecursionError where YAML is nested too deeply to be loaded; reads events, which need no recursion."""
    raw = text.encode() if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX and _MARKS.search(raw) is None:
        return
    depth = 0
    for event in yaml.parse(raw, _PARSER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise RecursionError("nested too deeply")
