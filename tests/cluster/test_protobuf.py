"""Claims that JSON cannot write are rewritten byte for byte, but for what is to change."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.apiserver.protobuf import decode
from dray.apiserver.schema import Schemas
from dray.cluster.port import Conflict, Invalid, Refused, Write
from dray.cluster.protobuf import helps, rewritten

PARAMETERS = b'{"a": 1,\n  "b": [1, 2]}'


def field(number: int, value: bytes) -> bytes:
    size, encoded = len(value), b""
    while size >= 0x80:
        encoded, size = encoded + bytes([size & 0x7F | 0x80]), size >> 7
    assert number < 16
    return bytes([number << 3 | 2]) + encoded + bytes([size]) + value


def stored(*finalizers: bytes, users: tuple[bytes, ...] = ()) -> bytes:
    """A claim with parameters as a client wrote them, and a number that nobody knows."""
    metadata = (
        field(1, b"w") + field(3, b"default") + field(5, b"u1") + field(6, b"77") + b"".join(field(14, f) for f in finalizers)
    )
    opaque = field(1, b"d.example.com") + field(2, field(1, PARAMETERS))
    spec = field(1, field(3, field(2, field(1, opaque))))
    references = b"".join(field(2, field(1, b"") + field(3, b"pods") + field(4, b"p-" + uid) + field(5, uid)) for uid in users)
    unknown = bytes([15 << 3, 0x96, 0x01])  # a varint
    claim = field(1, metadata) + field(2, spec) + field(3, references) + unknown
    envelope = field(1, field(1, b"resource.k8s.io/v1") + field(2, b"ResourceClaim")) + field(2, claim)
    return b"k8s\x00" + envelope


def patch(body: dict[str, Any], **more: Any) -> Write:
    return Write("patch", RESOURCE_CLAIMS, "default", "w", body, **more)


def read(data: bytes) -> dict[str, Any]:
    return decode(data, Schemas())


def refused(field: str, message: str = "Invalid value: null: field is immutable") -> Refused:
    return Invalid(422, "Invalid", message, {"details": {"causes": [{"field": field, "message": message}]}})


class TestFinalizers:
    def test_come_and_go_and_the_rest_stays_byte_for_byte(self) -> None:
        with_one = rewritten(patch({"metadata": {"finalizers": ["a/b"]}}), stored())
        assert PARAMETERS in with_one
        assert bytes([15 << 3, 0x96, 0x01]) in with_one
        assert read(with_one)["metadata"] == read(stored())["metadata"] | {"finalizers": ["a/b"]}
        without = rewritten(patch({"metadata": {"finalizers": None}}), with_one)
        assert read(without) == read(stored())
        assert len(without) == len(stored())

    def test_are_replaced_as_a_merge_patch_does_it(self) -> None:
        made = rewritten(patch({"metadata": {"finalizers": ["c/d", "e/f"]}}), stored(b"a/b"))
        assert read(made)["metadata"]["finalizers"] == ["c/d", "e/f"]

    def test_nothing_to_change_changes_nothing(self) -> None:
        assert read(rewritten(patch({}), stored(b"a/b"))) == read(stored(b"a/b"))


class TestReservations:
    def test_change_as_the_patch_says(self) -> None:
        delta = {"status": {"reservedFor": [{"$patch": "delete", "uid": "x"}, {"resource": "pods", "name": "n", "uid": "z"}]}}
        made = rewritten(patch(delta, subresource="status", patch="strategic"), stored(users=(b"x", b"y")))
        users = read(made)["status"]["reservedFor"]
        assert [(user["name"], user["uid"], user["resource"]) for user in users] == [("p-y", "y", "pods"), ("n", "z", "pods")]
        assert PARAMETERS in made

    def test_are_replaced_by_a_merge_patch(self) -> None:
        whole = {"status": {"reservedFor": [{"resource": "pods", "name": "n", "uid": "z"}]}}
        made = rewritten(patch(whole, subresource="status"), stored(users=(b"x", b"y")))
        assert [user["uid"] for user in read(made)["status"]["reservedFor"]] == ["z"]


@pytest.mark.parametrize("wanted", [{"uid": "u2"}, {"resource_version": "76"}])
def test_a_claim_that_is_another_one_by_now_is_a_conflict(wanted: dict[str, str]) -> None:
    with pytest.raises(Conflict):
        rewritten(patch({"metadata": {"finalizers": None}}, **wanted), stored(b"a/b"))


@pytest.mark.parametrize("answer", [b"{}", b"", b"k8s"])
def test_an_answer_that_is_not_protobuf_is_said_to_be(answer: bytes) -> None:
    with pytest.raises(ValueError, match="did not answer in protobuf"):
        rewritten(patch({}), answer)


class TestItHelps:
    def test_where_only_what_does_not_change_is_refused(self) -> None:
        assert helps(patch({"metadata": {"finalizers": ["a"]}}), refused("spec"))
        assert helps(patch({}), refused("spec"))
        kept = refused("status.allocation", "Invalid value: null: field cannot be modified once set")
        assert helps(patch({"status": {"reservedFor": []}}, subresource="status"), kept)

    def test_nowhere_else(self) -> None:
        finalizers = {"metadata": {"finalizers": ["a"]}}
        assert not helps(patch(finalizers), refused("metadata.finalizers"))
        assert not helps(patch(finalizers), refused("spec", "too long"))
        assert not helps(patch({"metadata": {"labels": {}, "finalizers": []}}), refused("spec"))
        assert not helps(patch({"spec": {"devices": {}}}), refused("spec"))
        assert not helps(patch(finalizers, patch="strategic"), refused("spec"))
        assert not helps(patch({"status": {"allocation": {}}}, subresource="status"), refused("status.allocation"))
        assert not helps(Write("patch", PODS, "default", "w", finalizers), refused("spec"))
        assert not helps(patch(finalizers), Conflict(409, "Conflict", "changed"))
