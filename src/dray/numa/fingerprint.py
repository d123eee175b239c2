"""Does a NodeResourceTopology already count exactly these pods? Its fingerprint tells, where its exporter writes one.

The fingerprint is upstream's (``podfingerprint``): a hash over the hashes of all pods' namespaces and names, in no order. Pods
with the same names as others look the same to it. A fingerprint of another version says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from dray.api.core import Pod
from dray.api.topology import NodeResourceTopology
from dray.numa.demand import demand

ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"
ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
PREFIX: Final = "pfp0"
VERSION: Final = "v001"
EXCLUSIVE: Final = "with-exclusive-resources"

Answer = Literal["same", "other", "unknown"]


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Of (namespace, name) pairs."""
    hashes = sorted(xxhash64(name.encode(), xxhash64(namespace.encode())) for namespace, name in pods)
    joined = b"".join(value.to_bytes(8, "little") for value in hashes)
    return f"{PREFIX}{VERSION}{xxhash64(joined):016x}"


def counts_exactly(topology: NodeResourceTopology, pods: Iterable[Pod]) -> Answer:
    """Whether what is published counts these pods and no others; unknown where nothing, or nothing readable, says so."""
    published = topology.attribute(ATTRIBUTE)
    exclusive = bool(published) and topology.attribute(METHOD_ATTRIBUTE) == EXCLUSIVE
    published = published or topology.metadata.annotations.get(ANNOTATION, "")
    if len(published) < 16 or not published.startswith(PREFIX + VERSION):
        return "unknown"
    counted = ((pod.metadata.namespace, pod.metadata.name) for pod in pods if not exclusive or demand(pod).units)
    return "same" if published == fingerprint(counted) else "other"


# --------------------------------------------------------------------------------------------------------------- xxhash64

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def xxhash64(data: bytes, seed: int = 0) -> int:
    """The 64-bit xxHash of some bytes."""
    position = 0
    if len(data) >= 32:
        lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed & _MASK, seed - _P1 & _MASK]
        while position + 32 <= len(data):
            lanes = [_round(lane, _word(data, position + 8 * index, 8)) for index, lane in enumerate(lanes)]
            position += 32
        value = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            value = (value ^ _round(0, lane)) * _P1 + _P4 & _MASK
    else:
        value = seed + _P5 & _MASK
    return _finished(_rest(value + len(data) & _MASK, data, position))


def _rest(value: int, data: bytes, position: int) -> int:
    while position + 8 <= len(data):
        value = _rotated(value ^ _round(0, _word(data, position, 8)), 27) * _P1 + _P4 & _MASK
        position += 8
    if position + 4 <= len(data):
        value = _rotated(value ^ _word(data, position, 4) * _P1 & _MASK, 23) * _P2 + _P3 & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotated(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    return value


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _MASK


def _word(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")
