"""What is served, as clients ask for it: aggregated and legacy discovery. Made once, and again when a kind comes or goes."""

from __future__ import annotations

from base64 import b64encode
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from dray.apiserver.registry import Registry, Resource, Subresource
from dray.apiserver.store import encode

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

VERSION: Final = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.0+dray",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "linux/amd64",
}


class Document:
    """Encoded bytes with the tag that says whether a client has them already."""

    __slots__ = ("body", "content_type", "etag")

    def __init__(self, value: Any, content_type: str = "application/json") -> None:
        self.body = value if isinstance(value, bytes) else encode(value)
        self.content_type = content_type
        self.etag = f'"{sha256(self.body).hexdigest()[:32].upper()}"'


class Discovery:
    def __init__(self, registry: Registry) -> None:
        self._groups = registry.group_versions()
        self._lists: dict[tuple[str, str], Document] = {}

    def wants_aggregated(self, accept: str) -> bool:
        return "as=APIGroupDiscoveryList" in accept and "v=v2" in accept.replace("v=v2beta1", "")

    @cached_property
    def core(self) -> Document:
        return Document({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})

    @cached_property
    def groups(self) -> Document:
        named = [_group(name, versions) for name, versions in self._groups.items() if name]
        return Document({"kind": "APIGroupList", "apiVersion": "v1", "groups": named})

    @cached_property
    def aggregated_core(self) -> Document:
        return self._aggregated([""])

    @cached_property
    def aggregated_groups(self) -> Document:
        return self._aggregated([name for name in self._groups if name])

    def group(self, name: str) -> Document | None:
        versions = self._groups.get(name) if name else None
        return Document({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}) if versions else None

    def resources(self, group: str, version: str) -> Document | None:
        found = self._groups.get(group, {}).get(version)
        if found is None:
            return None
        key = (group, version)
        if key not in self._lists:
            listed = [entry for resource in found for entry in _legacy(resource)]
            kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _group_version(group, version)}
            self._lists[key] = Document(kind | {"resources": listed})
        return self._lists[key]

    def _aggregated(self, names: list[str]) -> Document:
        items = [
            {
                "metadata": {"name": name, "creationTimestamp": None},
                "versions": [
                    {"version": version, "resources": [_modern(r) for r in resources], "freshness": "Current"}
                    for version, resources in self._groups[name].items()
                ],
            }
            for name in names
        ]
        kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
        return Document(kind | {"items": items}, AGGREGATED)


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _group(name: str, versions: dict[str, list[Resource]]) -> dict[str, Any]:
    listed = [{"groupVersion": _group_version(name, version), "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _legacy(resource: Resource) -> list[dict[str, Any]]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": resource.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "list" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(resource)
    return [entry, *(_legacy_subresource(resource, sub) for sub in resource.subresources)]


def _storage_hash(resource: Resource) -> str:
    """Changes when objects are stored in another version; computed as everywhere, so that clients can compare."""
    kind = resource.kind
    stored = f"{kind.group}/{resource.stored_version or kind.version}/{kind.kind}"
    return b64encode(sha256(stored.encode()).digest()[:8]).decode()


def _legacy_subresource(resource: Resource, sub: Subresource) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind or kind.kind,
        "verbs": list(sub.verbs),
    }
    if sub.kind:
        entry |= {"group": sub.group, "version": sub.version}
    return entry


def _modern(resource: Resource) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": resource.singular_name,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_modern_subresource(resource, sub) for sub in resource.subresources]
    return entry


def _modern_subresource(resource: Resource, sub: Subresource) -> dict[str, Any]:
    kind = resource.kind
    response = (sub.group, sub.version, sub.kind) if sub.kind else (kind.group, kind.version, kind.kind)
    shown = dict(zip(("group", "version", "kind"), response, strict=True))
    return {"subresource": sub.name, "responseKind": shown, "verbs": list(sub.verbs)}
