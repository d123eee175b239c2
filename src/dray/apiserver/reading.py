"""Lists: resourceVersion semantics, pages over a snapshot, and continue tokens.

A page after the first is read from the same revision as the first, by undoing what the table's history says has changed
since; when that history is gone the token is expired.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from dray.api.digits import whole
from dray.api.validation.errors import FieldError
from dray.apiserver.errors import bad_request, expired, too_large_resource_version
from dray.apiserver.options import options_invalid, unsupported
from dray.apiserver.queries import flag, number, syntax
from dray.apiserver.registry import Resource
from dray.apiserver.selection import Selection
from dray.apiserver.store import Entry, Store, Table

_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class ListOptions(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""
    initial: bool | None = None


class Page(msgspec.Struct, frozen=True):
    """Entries of a list, the revision that they are of, and how to go on."""

    entries: list[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


def read_page(store: Store, resource: Resource, namespace: str, options: ListOptions) -> Page:
    _check(options)
    selection = Selection(resource, namespace, options.labels, options.fields)
    table = store.table(resource.storage)
    start, revision = "", store.revision
    if options.token:
        token = _parse(options.token)
        start, revision = token.start, token.rv if token.rv >= 0 else store.revision
    elif options.resource_version not in ("", "0"):
        asked = parse_revision(options.resource_version)
        if asked > store.revision:
            raise too_large_resource_version(asked, store.revision)
        if options.match == "Exact" or (options.limit > 0 and not options.match):
            revision = asked
    rows = _rows(store, table, selection, revision, start if options.token else None)
    return _page(rows, selection, options, revision)


def _rows(store: Store, table: Table, selection: Selection, revision: int, start: str | None) -> list[tuple[str, Entry]]:
    if revision < table.compacted and revision < store.revision:
        if start is not None:
            raise expired(_OLD_TOKEN, _token(-1, start))
        raise expired(f"The resourceVersion for the provided list is too old: {revision} ({table.compacted})")
    if not start and revision == store.revision and selection.key:
        return table.one(selection.key)
    rows = table.scan(selection.prefix) if revision == store.revision else table.at(revision, selection.prefix)
    return [row for row in rows if row[0] >= start] if start else rows


def _page(rows: list[tuple[str, Entry]], selection: Selection, options: ListOptions, revision: int) -> Page:
    matches, limit = selection.matches, options.limit
    if matches is not None:
        rows = [row for row in rows if selection.chooses(row[1])]
    if limit <= 0 or len(rows) <= limit:
        return Page([entry for _, entry in rows], revision)
    remaining = len(rows) - limit if matches is None else None
    return Page([entry for _, entry in rows[:limit]], revision, _token(revision, rows[limit][0]), remaining)


def _token(revision: int, start: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token("meta.k8s.io/v1", revision, start))).decode().rstrip("=")


def _parse(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise bad_request("invalid continue token: continue key is not valid: it is not one that this server gave") from error


def _check(options: ListOptions) -> None:
    match, version = options.match, options.resource_version
    path, problems = "resourceVersionMatch", []
    if match and not version:
        problems.append(FieldError(path, "Forbidden", "", "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if match and options.token:
        problems.append(FieldError(path, "Forbidden", "", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("", "Exact", "NotOlderThan"):
        problems.append(unsupported(path, match, "Exact", "NotOlderThan", ""))
    if match == "Exact" and version == "0":
        problems.append(FieldError(path, "Forbidden", "", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if options.initial is not None:
        problems.append(FieldError("sendInitialEvents", "Forbidden", "", "sendInitialEvents is forbidden for list"))
    if problems:
        raise options_invalid("ListOptions", problems)
    if options.token and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def parse_revision(text: str) -> int:
    """The revision that a client names."""
    revision = whole(text)
    if revision is None:
        shown = msgspec.json.encode(text[:64]).decode()
        said = f"resourceVersion: Invalid value: {shown}: {syntax('strconv.ParseUint', text)}"
        raise bad_request(f"invalid resource version: {said}")
    return revision


def list_metadata(page: Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def list_options(query: Mapping[str, str]) -> ListOptions:
    number(query, "timeoutSeconds")  # of watches, and refused everywhere
    return ListOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=number(query, "limit") or 0,
        token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        initial=flag(query, "sendInitialEvents"),
    )
