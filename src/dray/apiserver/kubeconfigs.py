"""Kubeconfigs of an embedded cluster: for its owner, for somebody who only reads, and merged into one that exists."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dray.api import yaml_text
from dray.apiserver.identity import Identity, write_private
from dray.cluster.kubeconfig import KubeconfigError

Object = dict[str, Any]


def kubeconfig(identity: Identity, url: str, *, view: bool = False) -> Object:
    """``view``: with reading rights only."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(identity.ca.encode()).decode()}
    name = "dray-view" if view else "dray"
    token = identity.reader_token if view else identity.admin_token
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dray", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": "dray", "user": name, "namespace": "default"}}],
        "current-context": name,
    }


def written(config: Object) -> bytes:
    """In JSON, which is YAML."""
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def merge(config: Object, path: Path) -> None:
    """Put the cluster, user and context of ``config`` into the file, in place of those of the same name, and make the context
    the current one. Everything else in the file stays."""
    found = _read(path)
    for field in ("clusters", "users", "contexts"):
        entries = found.get(field) or []
        if not isinstance(entries, list):
            raise KubeconfigError(f"{path}: {field} is not a list; the file was not changed")
        names = {entry["name"] for entry in config[field]}
        found[field] = [e for e in entries if not (isinstance(e, dict) and e.get("name") in names)] + config[field]
    found["current-context"] = config["current-context"]
    write_private(path, yaml.safe_dump(found, sort_keys=False).encode())


def merged_path(environment: Mapping[str, str]) -> Path:
    """Where kubectl itself writes: the first file of KUBECONFIG, or ~/.kube/config."""
    first = environment.get("KUBECONFIG", "").partition(":")[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def _read(path: Path) -> Object:
    try:
        found = yaml_text.document(path.read_text())
    except FileNotFoundError:
        found = None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"kubeconfig {path} {yaml_text.unreadable(error)}; it was not changed") from error
    if found is None:
        return {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(found, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig; it was not changed")
    return found
