"""Fingerprints of the pods that a topology object counts."""

from __future__ import annotations

import pytest

from dray.api.core import Pod
from dray.api.meta import decode
from dray.api.topology import AttributeInfo, NodeResourceTopology
from dray.numa.fingerprint import ANNOTATION, ATTRIBUTE, EXCLUSIVE, METHOD_ATTRIBUTE, counts_exactly, fingerprint, xxhash64
from tests.numa.building import pod

PODS = [("default", "a"), ("kube-system", "b")]


def pods(*named: tuple[str, str], **needs: int) -> list[Pod]:
    return [pod(needs, metadata={"namespace": namespace, "name": name}) for namespace, name in named]


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # The values that xxHash publishes for itself.
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_xxhash64(data: bytes, seed: int, expected: int) -> None:
    assert xxhash64(data, seed) == expected


def published(text: str = "", annotation: str = "") -> NodeResourceTopology:
    attributes = [{"name": ATTRIBUTE, "value": text}] if text else []
    raw = {"metadata": {"name": "n1", "annotations": {ANNOTATION: annotation} if annotation else {}}, "attributes": attributes}
    return decode(NodeResourceTopology, {**raw, "zones": []})


def test_the_order_of_pods_does_not_matter() -> None:
    assert fingerprint(PODS) == fingerprint(reversed(PODS))
    assert fingerprint(PODS) != fingerprint(PODS[:1])
    assert fingerprint(PODS).startswith("pfp0v001")


def test_it_tells_whether_these_pods_are_counted() -> None:
    assert counts_exactly(published(fingerprint(PODS)), pods(*PODS)) == "same"
    assert counts_exactly(published(annotation=fingerprint(PODS)), pods(*PODS)) == "same"
    assert counts_exactly(published(fingerprint(PODS)), pods(*PODS[:1])) == "other"


def test_where_only_pods_with_exclusive_resources_are_counted_the_others_do_not_matter() -> None:
    given = published(fingerprint(PODS[:1]))
    given.attributes = (*given.attributes, AttributeInfo(METHOD_ATTRIBUTE, EXCLUSIVE))
    assert counts_exactly(given, [*pods(PODS[0], cpu=1), *pods(PODS[1])]) == "same"
    assert counts_exactly(given, [*pods(PODS[0], cpu=1), *pods(PODS[1], cpu=1)]) == "other"


@pytest.mark.parametrize("text", ["", "pfp0", "pfp0v002" + "0" * 16, "xyz0v001" + "0" * 16])
def test_p13_what_cannot_be_read_is_unknown_and_never_the_same(text: str) -> None:
    assert counts_exactly(published(text), pods(*PODS)) == "unknown"
