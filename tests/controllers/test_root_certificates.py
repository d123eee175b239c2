"""The API server's certificate in each namespace, where pods look for it: published by who has it, left alone by who has not."""

from __future__ import annotations

from dray.api.kinds import CONFIG_MAPS, NAMESPACES
from dray.controllers.namespaces import ROOT_CA, Namespaces
from tests.simulated import KINDS, Place


def begin(certificate: str) -> Place:
    place = Place()
    place.start("namespaces", KINDS, lambda world: [Namespaces(world, KINDS, certificate)])
    place.create(NAMESPACES, {"metadata": {"name": "team"}})
    place.pass_time(5)
    return place


def published(place: Place) -> dict[str, str]:
    found = (each for each in place.all(CONFIG_MAPS) if each["metadata"]["name"] == ROOT_CA)
    return {each["metadata"]["namespace"]: each["data"]["ca.crt"] for each in found}


def test_it_is_in_every_namespace_and_put_right_when_somebody_changes_it() -> None:
    place = begin("ours")
    assert published(place)["team"] == published(place)["default"] == "ours"
    place.patch(CONFIG_MAPS, ROOT_CA, {"data": {"ca.crt": "meddled"}})
    place.pass_time(5)
    assert published(place)["default"] == "ours"


def test_without_one_what_another_controller_publishes_is_left_alone() -> None:
    place = begin("")
    assert published(place) == {}
    place.create(CONFIG_MAPS, {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": "theirs"}})
    place.patch(CONFIG_MAPS, ROOT_CA, {"data": {"ca.crt": "theirs, renewed"}})
    place.pass_time(5)
    assert published(place) == {"default": "theirs, renewed"}
