"""Approved requests for certificates get them: signing for the cluster's own signers. Requests of other signers are theirs.

Always true: nothing is signed that is not approved; a request that its signer cannot sign is marked Failed, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dray.api.kinds import CERTIFICATE_SIGNING_REQUESTS
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

Object = dict[str, Any]
# The specification of a request and the time -> the certificate, or None where somebody else signs. ValueError: it cannot.
Sign = Callable[[Object, float], str | None]


class CertificateSigning(Keyed):
    """The decider. Keys are names of requests."""

    name = "certificate-signing"
    kinds = (CERTIFICATE_SIGNING_REQUESTS,)

    def __init__(self, world: World, sign: Sign) -> None:
        super().__init__(world)
        self._sign = sign

    def concerned(self, change: Change) -> Iterable[str]:
        return [change.object.key]

    def decide(self, key: str, now: float) -> list[Write]:
        found = self.world.get(CERTIFICATE_SIGNING_REQUESTS, key)
        if found is None:
            self.forget(key)
            return []
        conditions = found.status.get("conditions") or []
        said = {condition.get("type") for condition in conditions}
        if "Approved" not in said or said & {"Denied", "Failed"} or found.status.get("certificate"):
            return []
        try:
            certificate = self._sign(found.spec, now)
        except ValueError as error:
            failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": str(error)}
            return [self._write(key, found.uid, {"conditions": [*conditions, failed]})]
        return [self._write(key, found.uid, {"certificate": certificate})] if certificate else []

    @staticmethod
    def _write(name: str, uid: str, status: Object) -> Write:
        body = {"metadata": {"name": name, "uid": uid}, "status": status}
        return Write("patch", CERTIFICATE_SIGNING_REQUESTS, name=name, body=body, subresource="status")
