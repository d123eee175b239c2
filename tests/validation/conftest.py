"""Objects that are right, to be made wrong in one place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dray.api.defaults import apply_defaults
from dray.api.gates import Gates
from dray.api.stripping import strip_disabled
from dray.api.validation import FieldError, validate_create, validate_update

Object = dict[str, Any]
Refused = Callable[..., list[str]]


class Api:
    """Defaults, strips and validates as the API server does; gives the paths that were refused."""

    gates = Gates.dray()

    def create(
        self, plural: str, obj: Object, *, gates: Gates | None = None, namespace: dict[str, str] | None = None
    ) -> list[str]:
        return [error.path for error in self.errors(plural, obj, gates=gates, namespace=namespace)]

    def errors(
        self, plural: str, obj: Object, *, gates: Gates | None = None, namespace: dict[str, str] | None = None
    ) -> list[FieldError]:
        gates = gates or self.gates
        prepared = apply_defaults(plural, copy.deepcopy(obj), 0)
        strip_disabled(plural, prepared, None, gates)
        return validate_create(plural, prepared, gates, namespace_labels=namespace)

    def update(
        self, plural: str, new: Object, old: Object, *, subresource: str = "", namespace: dict[str, str] | None = None
    ) -> list[str]:
        before = apply_defaults(plural, copy.deepcopy(old), 0)
        after = apply_defaults(plural, copy.deepcopy(new), 0)
        strip_disabled(plural, after, before, self.gates)
        found = validate_update(plural, after, before, self.gates, subresource, namespace_labels=namespace)
        return [error.path for error in found]


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def new_slice() -> Callable[..., Object]:
    def make(**spec: Any) -> Object:
        base = {
            "driver": "gpu.example.com",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-a",
            "devices": [{"name": "gpu-0"}],
        }
        return {"metadata": {"name": "s"}, "spec": {key: value for key, value in (base | spec).items() if value is not None}}

    return make


@pytest.fixture
def device(new_slice: Callable[..., Object]) -> Callable[..., Object]:
    """A slice with one device."""

    def make(**fields: Any) -> Object:
        return new_slice(devices=[{"name": "gpu-0", **fields}])

    return make


@pytest.fixture
def claim() -> Callable[..., Object]:
    def make(*requests: Object, **devices: Any) -> Object:
        default = [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
        return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests) or default, **devices}}}

    return make


@pytest.fixture
def exactly(claim: Callable[..., Object]) -> Callable[..., Object]:
    """A claim with one request."""

    def make(**fields: Any) -> Object:
        return claim({"name": "r", "exactly": {"deviceClassName": "gpu.example.com", **fields}})

    return make


@pytest.fixture
def pod() -> Callable[..., Object]:
    def make(**spec: Any) -> Object:
        return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}

    return make
