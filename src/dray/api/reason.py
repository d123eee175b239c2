"""Why something was refused, as data.

A reason names the object, the check that failed and its numbers. It holds no sentence: words are made at the edge
(``dray.api.words``). The codes are a closed list (``dray.api.codes``); each is documented in docs/reasons.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.codes import CODES


class Reason(msgspec.Struct, frozen=True):
    """One refusal. ``object`` is what was refused (``node/n1``, ``claim/ns/name``, ``device/driver/pool/name``)."""

    code: str
    object: str = ""
    data: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"reason code {self.code!r} is not in the closed list")
