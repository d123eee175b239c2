"""Definitions that every cluster of Dray has from the start: kinds of other projects that its scheduler understands.

They are definitions like anybody's: a user may change or delete them while the server runs. One that Dray changed in a newer
version replaces the one that an older version installed.
"""

from __future__ import annotations

from hashlib import sha256
from importlib import resources
from typing import Any, Final

import msgspec

NAMES: Final = (
    "noderesourcetopologies.topology.node.k8s.io",
    "podgroups.scheduling.run.ai",
    "queues.scheduling.run.ai",
    "topologies.kai.scheduler",
)
# What of a stored definition says which file it was made from.
SOURCE: Final = "dray.dev/definition"


def source(name: str) -> tuple[bytes, str]:
    """The file of a definition, and what to compare it by."""
    raw = resources.files(__package__).joinpath(f"{name}.json").read_bytes()
    return raw, sha256(raw).hexdigest()[:16]


def definition(raw: bytes, tag: str) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(raw)
    made["metadata"].setdefault("annotations", {})[SOURCE] = tag
    return made
