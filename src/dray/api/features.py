"""Which features are on, as Kubernetes' servers tell it in ``/metrics``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dray.api.gates import GATES

METRIC: Final = "kubernetes_feature_enabled"
_LINE: Final = re.compile(rf'^{METRIC}{{[^}}\n]*\bname="(?P<name>\w+)"[^}}\n]*}} (?P<on>[01])(?:\.0+)?$', re.MULTILINE)


def read(text: bytes) -> Mapping[str, bool]:
    """The features that are known here."""
    found = {match["name"]: match["on"] == "1" for match in _LINE.finditer(text.decode(errors="replace"))}
    return {name: on for name, on in found.items() if name in GATES}
