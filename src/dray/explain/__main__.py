"""``python -m dray.explain > docs/reasons.md``: the page of all reasons, made from their texts."""

from __future__ import annotations

from collections.abc import Mapping

from dray.api.codes import SECTIONS, Code
from dray.api.reason import Reason
from dray.api.words import data_keys, in_upstream_words

_HEAD = """# Reasons

When Dray refuses something, the reason is data first and text second: a code, the object, and the numbers. `dray why -o json`,
`dray allocate` and `dray simulate -o json` print each reason like this:

```json
{"code": "NotEnoughDevices", "message": "node n1 has not enough devices of class gpu (needs 2, 1 free)",
 "object": "node/n1", "data": {"class": "gpu", "needed": 2, "free": 1}}
```

- **Scripts should read `code` and `data`.** The wording of messages may change at any time.
- **The list of codes is complete**, apart from those that [plugins](plugins.md) of other packages add. The column `data` lists
  what a reason may carry; a value that is not known is left out.
- **kube-scheduler's phrase for the same problem** follows Dray's own text in events and in the pod's condition
  ("In kube-scheduler's words: 3 cannot allocate all claims"), so that searches and alerts made for kube-scheduler still work.
  `dray why -o json` has it as `upstream`.

This page is made from `dray.api.codes` (`python -m dray.explain > docs/reasons.md`); a test compares the two.
"""
_COLUMNS = """| code | about | meaning | data | kube-scheduler says |
| --- | --- | --- | --- | --- |"""


def page() -> str:
    return "\n".join([_HEAD, *(f"## {title}\n\n{_COLUMNS}\n{_rows(table)}" for title, table in SECTIONS.items())])


def _rows(table: Mapping[str, Code]) -> str:
    return "".join(
        f"| `{code}` | {found.subject} | {found.meaning} | {_keys(code)} | {_phrase(code)} |\n" for code, found in table.items()
    )


def _keys(code: str) -> str:
    return ", ".join(f"`{key}`" for key in data_keys(code))


def _phrase(code: str) -> str:
    return in_upstream_words([(Reason(code), 0)], 0).removesuffix(".")


if __name__ == "__main__":
    print(page(), end="")
