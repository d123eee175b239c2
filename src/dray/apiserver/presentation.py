"""Objects on their way out: as they are, as rows of a Table, or as their metadata alone.

Stored objects are encoded once, when they are written; a plain list or event is put together from those bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.reading import Page, list_metadata
from dray.apiserver.registry import Resource
from dray.apiserver.store import Delivered, Entry, encode

JSON: Final = "application/json"
_ACCEPTED: Final = (
    "application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)


class Form(msgspec.Struct, frozen=True):
    """How the client wants objects: ``as_`` is empty, Table, PartialObjectMetadata or PartialObjectMetadataList. A client that
    would rather have protobuf expects list items that are ``bare``: protobuf does not say in each what it is."""

    as_: str = ""
    version: str = "v1"
    include: str = "Metadata"
    bare: bool = False


PLAIN: Final = Form()
_INCLUDED: Final = ("", "Metadata", "Object", "None")


def negotiate(accept: str, include: str) -> Form:
    """The first of the client's choices that is served."""
    if not accept or accept in ("*/*", JSON):
        return PLAIN
    for choice in accept.split(","):
        media, *rest = (part.strip() for part in choice.split(";"))
        if media not in (JSON, "*/*", "application/*"):
            continue
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        wanted = parameters.get("as", "")
        if not wanted:
            return PLAIN
        served = wanted in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
        if served and parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1"):
            if wanted == "Table" and include not in _INCLUDED:
                raise _no_table(include)
            return Form(wanted.removesuffix("List"), parameters["v"], include or "Metadata", "kubernetes.protobuf" in accept)
    raise not_acceptable(_ACCEPTED)


def _no_table(include: str) -> ApiError:
    words = "must be 'Metadata', 'Object', 'None', or empty"
    shown = encode(include[:64]).decode()
    return bad_request(f"Unable to convert to Table as requested: includeObject: Invalid value: {shown}: {words}")


def not_acceptable(accepted: str) -> ApiError:
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


class Presentation:
    """One kind in one form, for one request."""

    def __init__(self, resource: Resource, form: Form, clock: Callable[[], float]) -> None:
        self._resource, self._form, self._clock = resource, form, clock
        self._headed = False

    def one(self, entry: Entry) -> bytes:
        if self._form.as_ == "Table":
            return encode(self._table([entry], {"resourceVersion": entry.look()["metadata"].get("resourceVersion", "")}))
        if self._form.as_:
            return encode(self._partial(entry.look()))
        return self._raw(entry)

    def many(self, page: Page) -> bytes:
        if self._form.as_ == "Table":
            return encode(self._table(page.entries, list_metadata(page)))
        if self._form.as_:
            partial = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{self._form.version}"}
            items = [self._partial(e.look()) for e in page.entries]
            if self._form.bare:
                items = [{"metadata": item["metadata"]} for item in items]
            return encode(partial | {"metadata": list_metadata(page), "items": items})
        kind = self._resource.kind
        head = {"kind": self._resource.list_name, "apiVersion": kind.api_version, "metadata": list_metadata(page)}
        return encode(head)[:-1] + b',"items":[' + self._items(page.entries) + b"]}\n"

    def _items(self, entries: Sequence[Entry]) -> bytes:
        """In a list of a declared kind the items do not repeat what they are, as Go writes typed lists."""
        found = [self._raw(entry) for entry in entries]
        kind = self._resource.kind
        head = b'{"kind":%s,"apiVersion":%s,' % (encode(kind.kind), encode(kind.api_version))
        if self._resource.structure is None and found and all(raw.startswith(head) for raw in found):
            size = len(head)
            return b"{" + b",{".join([raw[size:] for raw in found])
        return b",".join(found)

    def event(self, delivered: Delivered) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (delivered.type.encode(), self._in_watch(delivered.entry))

    def bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._resource.kind
        obj: dict[str, Any] = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if self._form.as_ == "Table":
            obj = self._table([], {"resourceVersion": str(revision)}) | {"rows": [{"cells": [], "object": self._partial(obj)}]}
        elif self._form.as_:
            obj = self._partial(obj)
        return b'{"type":"BOOKMARK","object":%s}\n' % encode(obj)

    def _in_watch(self, entry: Entry) -> bytes:
        if self._form.as_ != "Table":
            return self.one(entry)
        table = self._table([entry], {"resourceVersion": entry.look()["metadata"].get("resourceVersion", "")})
        if self._headed:
            table["columnDefinitions"] = None
        self._headed = True
        return encode(table)

    def _raw(self, entry: Entry) -> bytes:
        view = self._resource.from_stored
        return entry.raw if view is None else encode(view(entry.look()))

    def _partial(self, obj: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self._form.version}", "metadata": obj["metadata"]}

    def _table(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> dict[str, Any]:
        definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": 1 if column.wide else 0,
            }
            for column in self._resource.columns
        ]
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._form.version}",
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": [self._row(entry) for entry in entries],
        }

    def _row(self, entry: Entry) -> dict[str, Any]:
        obj, now = entry.look(), self._clock()
        row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in self._resource.columns]}
        if self._form.include == "Object":
            row["object"] = msgspec.Raw(self._raw(entry))
        elif self._form.include != "None":
            row["object"] = self._partial(obj)
        return row
