"""The names that a quota can limit, and what counts each of them.

Devices have three names that always mean the same devices: ``<class>.deviceclass.resource.k8s.io/devices``, the implicit extended
resource ``requests.deviceclass.resource.kubernetes.io/<class>``, and ``requests.<name>`` where a class serves that extended
resource.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from dray.api.names import is_native_resource
from dray.api.quantity import Quantity
from dray.api.quota_names import REQUESTS, VOLUME_NAMES, is_standard
from dray.api.resource import IMPLICIT_RESOURCE_PREFIX

Amounts = dict[str, Quantity]

COUNT: Final = "count/"
ONE: Final = Quantity.of(1)
ZERO: Final = Quantity.of(0)

CLASS_VOLUME_NAMES: Final = tuple(f".storageclass.storage.k8s.io/{name}" for name in sorted(VOLUME_NAMES))
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
IMPLICIT: Final = REQUESTS + IMPLICIT_RESOURCE_PREFIX


def is_extended(resource: str) -> bool:
    """A resource that device plugins or device classes offer: ``example.com/gpu``, also by the implicit name of a class."""
    if resource.startswith(IMPLICIT_RESOURCE_PREFIX):
        return True
    return not is_native_resource(resource) and not resource.startswith(REQUESTS)


def is_countable(name: str, kinds: Container[str]) -> bool:
    """Whether anything is charged to this name; ``kinds`` are the resources whose objects are counted."""
    if name.startswith(COUNT):
        return name[len(COUNT) :] in kinds
    if is_standard(name) or name.endswith((DEVICES, *CLASS_VOLUME_NAMES)):
        return True
    return name.startswith(REQUESTS) and is_extended(name[len(REQUESTS) :])


def subtract(total: Amounts, less: Mapping[str, Quantity]) -> None:
    for name, amount in less.items():
        total[name] = total.get(name, ZERO) - amount


def only(amounts: Mapping[str, Quantity], names: Iterable[str]) -> Amounts:
    return {name: amounts[name] for name in names if name in amounts}


def text(amounts: Mapping[str, Quantity]) -> str:
    """``cpu=2,pods=1``: how refusals print amounts."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
