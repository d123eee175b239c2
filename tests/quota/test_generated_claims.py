"""Claims from templates are charged when they are generated; a pod whose claim is refused waits and is told why."""

from __future__ import annotations

from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from dray.controllers.claims import ClaimsController
from tests.quota.room import GPU_DEVICES, exactly
from tests.simulated import Place


def made(place: Place) -> list[str]:
    return sorted(claim["metadata"]["ownerReferences"][0]["name"] for claim in place.all(RESOURCE_CLAIMS))


def waiting(name: str) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims}}


def test_a_claim_is_generated_when_the_quota_has_room_again() -> None:
    place = Place()
    place.start("claims", ClaimsController.kinds, lambda world: [ClaimsController(world, Gates.dray())])
    place.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {GPU_DEVICES: "1"}}})
    place.create(
        RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "one"}, "spec": {"spec": {"devices": {"requests": [exactly(1)]}}}}
    )
    place.create(PODS, waiting("first"))
    place.shell.run(10)
    place.create(PODS, waiting("second"))
    place.shell.run(30)
    assert made(place) == ["first"]
    told = [event.get("note") or event["message"] for event in place.core.all(EVENTS).values()]
    assert any("exceeded quota: q, requested" in note for note in told), told
    assert len(told) == 1  # however often it was refused
    place.delete(PODS, "first", gracePeriodSeconds=0)
    for claim in place.all(RESOURCE_CLAIMS):
        place.delete(RESOURCE_CLAIMS, claim["metadata"]["name"])
    place.shell.run(600)
    assert made(place) == ["second"]
