"""Simulated hardware by name and count (``h100-8:4``), from the catalogue or from files that users write or capture.

Always true: what is made is valid by the rules of the API, and the same request makes the same objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

from dray.api import yaml_text
from dray.api.digits import whole
from dray.nodes.hardware.description import NODES_MAX, Description, Manifest
from dray.nodes.hardware.template import TemplateError

FILE_MAX: Final = 16 << 20
ATTACHED: Final = "fabric.dray.dev/attached"
ATTACH_FAILED: Final = "fabric.dray.dev/attach-failed"
# By name: where the description is.
CATALOGUE: Final[Mapping[str, Path]] = {path.stem: path for path in sorted((Path(__file__).parent / "catalogue").glob("*.yaml"))}
_SUFFIXES: Final = (".yaml", ".yml")


class Hardware(msgspec.Struct):
    """The objects of some hardware. ``nodes`` go to the kubelets, ``objects`` (classes and slices) are created as they are."""

    nodes: list[Manifest] = []
    objects: list[Manifest] = []

    def add(self, nodes: Iterable[Manifest], objects: Iterable[Manifest]) -> None:
        """More of it; what is there already, such as a class that two have, is not made twice."""
        known = {(each["kind"], each["metadata"]["name"]) for each in (*self.nodes, *self.objects)}
        self.nodes.extend(each for each in nodes if ("Node", each["metadata"]["name"]) not in known)
        self.objects.extend(each for each in objects if (each["kind"], each["metadata"]["name"]) not in known)


class UnknownHardware(ValueError):
    """A request for hardware that there is not, not in this number, or whose description is wrong."""


def hardware(requests: Iterable[str]) -> Hardware:
    """The hardware of requests such as ``gpu8:4`` or ``rack.yaml:4``; left out, the count is the description's own.

    Of a file with several descriptions one is named with ``#``: ``site.yaml#gpus:4``.
    """
    made = Hardware()
    collects = gc.isenabled()
    gc.disable()  # millions of small objects, and none of them garbage
    try:
        for request in requests:
            what, count = _parsed(request)
            for description in _found(what):
                made.add(*description.make(description.count if count is None else count))
    except TemplateError as error:
        raise UnknownHardware(str(error)) from error
    finally:
        if collects:
            gc.enable()
    return made


def describe(name: str) -> str:
    """A sentence about an entry of the catalogue."""
    return _descriptions(CATALOGUE[name])[0].text


def _parsed(request: str) -> tuple[str, int | None]:
    what, colon, text = request.rpartition(":")
    if not colon or text.endswith(_SUFFIXES) or "/" in text:
        return request, None
    count = whole(text)
    if count is None or not 0 < count <= NODES_MAX:
        raise UnknownHardware(f"{request!r}: the count must be a number from 1 to {NODES_MAX}")
    return what, count


def _found(what: str) -> list[Description]:
    file, _, name = what.partition("#")
    if not file.endswith(_SUFFIXES):
        if what not in CATALOGUE:
            known = ", ".join(CATALOGUE)
            raise UnknownHardware(f"unknown hardware {what!r}; the catalogue has {known}; file names end in .yaml")
        return _descriptions(CATALOGUE[what])
    found = _descriptions(Path(file))
    if name and not (found := [each for each in found if each.name == name]):
        raise UnknownHardware(f"{file} has no hardware {name!r}")
    return found


@cache
def _descriptions(path: Path) -> list[Description]:
    try:
        if path.stat().st_size > FILE_MAX:
            raise UnknownHardware(f"{path} is larger than {FILE_MAX >> 20} MiB")
        text = path.read_text()
        documents = [each for each in yaml_text.documents(text) if each is not None]
    except OSError as error:
        raise UnknownHardware(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnknownHardware(f"{path}: {yaml_text.unreadable(error)}") from error
    if not documents:
        raise UnknownHardware(f"{path} describes no hardware")
    return [Description(document, f"{path.name}: document {place}") for place, document in enumerate(documents, 1)]
