"""``python -m dray.explain > docs/reasons.md``: the page of all reasons, made from their texts."""

from __future__ import annotations

from dray.api.codes import CODES
from dray.api.reason import Reason
from dray.api.words import data_keys, in_upstream_words

_HEAD = """# Reasons

Why Dray refuses something is data before it is words: a code, the object, and the numbers. `dray why -o json`,
`dray allocate` and `dray simulate -o json` print each reason as

```json
{"code": "NotEnoughDevices", "message": "node n1 has not enough devices of class gpu (needs 2, 1 free)",
 "object": "node/n1", "data": {"class": "gpu", "needed": 2, "free": 1}}
```

The codes below are the whole list; a new one is added here first. The data are those that a reason may carry; one that is
not known is left out. Messages may be worded better at any time: scripts should read `code` and `data`.

Events and the pod's condition have kube-scheduler's words for the same behind Dray's own ("In kube-scheduler's words: 3 cannot
allocate all claims"), so that searches and alerts made for kube-scheduler go on working; `dray why -o json` has them, too
(`upstream`).

This page is made from `dray.api.codes` (`python -m dray.explain > docs/reasons.md`); a test compares the two.

| code | about | means | data | kube-scheduler says |
| --- | --- | --- | --- | --- |"""


def page() -> str:
    rows = [
        f"| `{code}` | {found.subject} | {found.meaning} | {_keys(code)} | {_phrase(code)} |" for code, found in CODES.items()
    ]
    return "\n".join([_HEAD, *rows, ""])


def _keys(code: str) -> str:
    return ", ".join(f"`{key}`" for key in data_keys(code))


def _phrase(code: str) -> str:
    return in_upstream_words([(Reason(code), 0)], 0).removesuffix(".")


if __name__ == "__main__":
    print(page(), end="")
