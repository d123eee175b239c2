"""Tokens of service accounts: asked for, believed, and worth nothing when what they are bound to is gone."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from dray.apiserver.authentication.accounts import ISSUER
from dray.apiserver.authentication.users import AUTHENTICATED, User
from tests.apiserver.access.conftest import Policed
from tests.apiserver.conftest import PODS, Json, pod

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.fixture
def cluster() -> Policed:
    made = Policed()
    made.post(ACCOUNTS, {"metadata": {"name": "robot"}})
    return made


def token(cluster: Policed, **spec: object) -> str:
    made: str = cluster.post(f"{ACCOUNTS}/robot/token", {"spec": spec}, code=201)["status"]["token"]
    return made


def review(cluster: Policed, of: str, *audiences: str) -> Json:
    found: Json = cluster.post(TOKEN_REVIEWS, {"spec": {"token": of, "audiences": list(audiences)}})["status"]
    return found


def claims(of: str) -> Json:
    body = of.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


class TestATokenRequest:
    def test_gives_a_token_of_the_account(self, cluster: Policed) -> None:
        asked = cluster.post(f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 1200}}, code=201)
        said = claims(asked["status"]["token"])
        assert (said["sub"], said["aud"]) == ("system:serviceaccount:default:robot", [ISSUER])
        assert said["exp"] == int(cluster.now) + 1200
        assert asked["metadata"]["name"] == "robot"

    @pytest.mark.parametrize(
        ("spec", "code"),
        [
            ({"expirationSeconds": 599}, 422),
            ({"expirationSeconds": 1 << 33}, 422),
            ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}, 404),
            ({"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "x"}}, 400),
            ({"audiences": 7}, 400),
        ],
    )
    def test_that_makes_no_sense_is_refused(self, cluster: Policed, spec: Json, code: int) -> None:
        cluster.post(f"{ACCOUNTS}/robot/token", {"spec": spec}, code=code)

    def test_for_an_account_that_is_not_there(self, cluster: Policed) -> None:
        cluster.post(f"{ACCOUNTS}/none/token", {"spec": {}}, code=404)

    def test_is_not_bound_to_a_pod_of_another_account(self, cluster: Policed) -> None:
        cluster.post(PODS, pod())
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        found = cluster.post(f"{ACCOUNTS}/robot/token", {"spec": {"boundObjectRef": bound}}, code=400)
        assert "different serviceaccount name" in found["message"]


class TestATokenReview:
    def test_says_whose_it_is(self, cluster: Policed) -> None:
        found = review(cluster, token(cluster))
        assert found["authenticated"] is True
        assert found["audiences"] == [ISSUER]
        assert found["user"]["username"] == "system:serviceaccount:default:robot"
        assert found["user"]["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", AUTHENTICATED]

    def test_looks_at_the_audience(self, cluster: Policed) -> None:
        other = token(cluster, audiences=["vault"])
        assert "authenticated" not in review(cluster, other)
        assert review(cluster, other, "vault", "x")["audiences"] == ["vault"]
        assert cluster.core.authenticator.user(f"Bearer {other}") is None

    def test_refuses_what_is_not_a_token(self, cluster: Policed) -> None:
        good = token(cluster)
        head, body, signature = good.split(".")
        forged = f"{head}.{body[:-4]}AAAA.{signature}"
        for bad in ("x", "a.b.c", forged, f"{head}.{body}.", f"{head}.{body}.AAAA", good + "x" * 50_000):
            assert "error" in review(cluster, bad)

    def test_a_token_ends(self, cluster: Policed) -> None:
        short = token(cluster, expirationSeconds=600)
        cluster.now += 700
        assert "has expired" in review(cluster, short)["error"]

    def test_a_token_ends_with_its_account(self, cluster: Policed) -> None:
        made = token(cluster)
        assert review(cluster, made)["authenticated"]
        cluster.delete(f"{ACCOUNTS}/robot")
        assert "not found" in review(cluster, made)["error"]
        cluster.post(ACCOUNTS, {"metadata": {"name": "robot"}})
        assert "does not match claim" in review(cluster, made)["error"]

    def test_a_token_ends_with_its_pod_and_tells_where_it_runs(self, cluster: Policed) -> None:
        cluster.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
        cluster.post(PODS, pod(serviceAccountName="robot", nodeName="n1"))
        made = token(cluster, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
        extra = review(cluster, made)["user"]["extra"]
        assert extra["authentication.kubernetes.io/node-name"] == ["n1"]
        assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
        cluster.delete(f"{PODS}/p?gracePeriodSeconds=0")
        assert "invalidated" in review(cluster, made)["error"]


def test_others_can_verify_a_token_with_the_key_that_is_published(cluster: Policed) -> None:
    made, robot = token(cluster), User("system:serviceaccount:default:robot", ("system:serviceaccounts",))
    found = cluster.call("GET", "/.well-known/openid-configuration", user=robot)
    assert claims(made)["iss"] == found["issuer"]
    (key,) = cluster.call("GET", "/openid/v1/jwks", user=robot)["keys"]
    x, y = (int.from_bytes(base64.urlsafe_b64decode(key[part] + "="), "big") for part in ("x", "y"))
    head, body, signature = made.split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    numbers = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    public.verify(numbers, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    cluster.refused("GET", "/openid/v1/jwks", User("bob", (AUTHENTICATED,)))


class TestAPodOfAnAccount:
    def test_gets_a_token_mounted_unless_it_or_the_account_says_no(self, cluster: Policed) -> None:
        def mounted(name: str, **spec: object) -> bool:
            made = cluster.post(PODS, pod(name, serviceAccountName="robot", **spec))
            mounts = made["spec"]["containers"][0].get("volumeMounts", [])
            assert bool(mounts) == bool(made["spec"].get("volumes"))
            return bool(mounts)

        assert mounted("a")
        assert not mounted("b", automountServiceAccountToken=False)
        cluster.patch(f"{ACCOUNTS}/robot", {"automountServiceAccountToken": False})
        assert not mounted("c")
        assert mounted("d", automountServiceAccountToken=True)

    def test_gets_its_pull_secrets(self, cluster: Policed) -> None:
        cluster.patch(f"{ACCOUNTS}/robot", {"imagePullSecrets": [{"name": "s"}]})
        assert cluster.post(PODS, pod(serviceAccountName="robot"))["spec"]["imagePullSecrets"] == [{"name": "s"}]

    def test_that_nobody_made_is_refused_but_for_the_default_one(self, cluster: Policed) -> None:
        found = cluster.post(PODS, pod(serviceAccountName="none"), code=403)
        assert found["message"] == (
            'pods "p" is forbidden: error looking up service account default/none: serviceaccount "none" not found'
        )
        cluster.post(PODS, pod())
