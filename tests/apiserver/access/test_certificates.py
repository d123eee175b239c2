"""Certificates by request: approved, signed, and good for speaking to the server."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.api.access import CertificateSigningRequest
from dray.api.kinds import CERTIFICATE_SIGNING_REQUESTS
from dray.apiserver.authentication.certificates import CLIENT, KUBELET_CLIENT, ClientAuthority, Unsignable
from dray.apiserver.authentication.users import AUTHENTICATED, User
from dray.apiserver.identity import identity
from dray.apiserver.server import ApiServer
from dray.cluster.world import World
from dray.controllers.certificates import CertificateSigning
from tests.apiserver.access.conftest import BOB, Policed, rule, user
from tests.apiserver.conftest import Json
from tests.apiserver.test_hostile_clients import Client

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
KEY = ec.generate_private_key(ec.SECP256R1())
NOW = 1_800_000_000.0


def request(name: str = "carol", *groups: str) -> str:
    said = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*said, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(KEY, hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


def csr(text: str, signer: str = CLIENT, **spec: Any) -> Json:
    return {"metadata": {"name": "csr"}, "spec": {"request": text, "signerName": signer, "usages": ["client auth"], **spec}}


def approval(kind: str = "Approved") -> Json:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "x", "message": "y"}]}}


class TestARequest:
    def test_says_who_asked_whatever_it_claims(self, cluster: Policed) -> None:
        cluster.role("asks", rule("create", "certificatesigningrequests", "certificates.k8s.io"), namespace="")
        cluster.bind("asks", user(), namespace="")
        made = cluster.post(REQUESTS, csr(request(), username="root", groups=["system:masters"]), user=BOB)
        assert (made["spec"]["username"], made["spec"]["groups"]) == ("bob", [AUTHENTICATED])

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (csr(base64.b64encode(b"rubbish").decode()), "spec.request"),
            (csr(request(), usages=[]), "spec.usages"),
            (csr(request(), usages=["world domination"]), "spec.usages[0]"),
            (csr(request(), signer="nobody"), "spec.signerName"),
            (csr(request(), expirationSeconds=599), "spec.expirationSeconds"),
        ],
    )
    def test_that_makes_no_sense_is_refused(self, cluster: Policed, body: Json, field: str) -> None:
        found = cluster.post(REQUESTS, body, code=422)
        assert [cause["field"] for cause in found["details"]["causes"]] == [field]

    def test_does_not_make_administrators(self, cluster: Policed) -> None:
        said = cluster.post(REQUESTS, csr(request("x", "system:masters")), code=403)["message"]
        assert said.endswith("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")

    def test_is_approved_by_who_may_approve_for_the_signer(self, cluster: Policed) -> None:
        cluster.post(REQUESTS, csr(request()))
        cluster.role("approver", rule("update patch", "certificatesigningrequests/approval", "certificates.k8s.io"), namespace="")
        cluster.bind("approver", user(), namespace="")
        said = cluster.patch(f"{REQUESTS}/csr/approval", approval(), user=BOB, code=403)["message"]
        assert said.endswith('user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"')
        cluster.role("signer", rule("approve", "signers", "certificates.k8s.io", resourceNames=["kubernetes.io/*"]), namespace="")
        cluster.bind("signer", user(), namespace="")
        approved = cluster.patch(f"{REQUESTS}/csr/approval", approval(), user=BOB)
        assert approved["status"]["conditions"][0]["lastUpdateTime"]

    def test_is_decided_once_and_through_approval_only(self, cluster: Policed) -> None:
        cluster.post(REQUESTS, csr(request()))
        cluster.patch(f"{REQUESTS}/csr/status", approval(), code=422)
        cluster.patch(f"{REQUESTS}/csr/approval", approval("Denied"))
        cluster.patch(f"{REQUESTS}/csr/approval", approval("Approved"), code=422)


class TestTheSigner:
    authority = identity(None).client_authority

    def test_signs_what_was_asked_for(self) -> None:
        signed = self.authority.signed(csr(request("carol", "devs"), expirationSeconds=3600)["spec"], NOW)
        assert signed is not None
        certificate = x509.load_pem_x509_certificate(base64.b64decode(signed))
        assert certificate.subject.rfc4514_string() == "CN=carol,O=devs"
        assert certificate.not_valid_after_utc.timestamp() == NOW + 3600
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (csr(request(), usages=["server auth", "client auth"]), "invalid usage"),
            (csr(request(), usages=["digital signature"]), "missing required usage"),
            (csr(request(), KUBELET_CLIENT), "organization is not system:nodes"),
            (csr(request("x", "system:nodes"), KUBELET_CLIENT), "does not begin with system:node:"),
        ],
    )
    def test_refuses_what_its_rules_forbid(self, body: Json, why: str) -> None:
        with pytest.raises(Unsignable, match=why):
            self.authority.signed(body["spec"], NOW)

    def test_leaves_the_requests_of_other_signers(self) -> None:
        assert self.authority.signed(csr(request(), "example.com/mine")["spec"], NOW) is None

    def test_the_controller_signs_what_is_approved_and_marks_what_cannot_be(self) -> None:
        assert self.decided(csr(request()) | approval())["status"]["certificate"]
        failed = self.decided(csr(request(), usages=["server auth"]) | approval())["status"]["conditions"]
        assert [condition["type"] for condition in failed] == ["Approved", "Failed"]
        assert self.decided(csr(request())) == {}
        assert self.decided(csr(request()) | approval("Denied")) == {}

    def decided(self, obj: Json) -> Json:
        world = World(CertificateSigning.kinds)
        controller = CertificateSigning(world, self.authority.signed)
        found = CertificateSigningRequest(spec=obj["spec"], status=obj.get("status", {}))
        found.metadata.name = "csr"
        world._objects[CERTIFICATE_SIGNING_REQUESTS]["csr"] = found
        writes = controller.decide("csr", NOW)
        return writes[0].body if writes else {}


async def test_a_client_with_its_certificate_is_who_it_says(served: ApiServer, tmp_path: Path) -> None:
    signed = served.identity.client_authority.signed(csr(request("carol", "devs"))["spec"], served.core.operations.clock())
    assert signed is not None
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "client.pem").write_bytes(base64.b64decode(signed) + key)
    context = ssl.create_default_context(cadata=served.identity.ca)
    context.load_cert_chain(tmp_path / "client.pem")
    client = await Client.connect(served, context)
    code, body = await client.request("GET", "/api/v1/nodes")
    assert code == 403
    assert b'User \\"carol\\" cannot list' in body


def test_the_authority_of_clients_is_not_that_of_the_server() -> None:
    made = identity(None)
    assert made.ca != made.client_ca
    assert isinstance(made.client_authority, ClientAuthority)
    assert User("x").privileged is False
