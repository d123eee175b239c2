"""Signed tokens (JWT, ES256): made with the cluster's key, and believed only when made with it.

Always true: what ``verified`` returns was signed by this key; nothing else about it is checked here.
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_HALF: Final = 32  # bytes of each of the two numbers of a P-256 signature
_CURVE_BYTES: Final = 2 * _HALF
_encode: Final = msgspec.json.Encoder().encode


class InvalidToken(ValueError):
    """It is no token of this cluster. Whoever sent it must get another."""


class Signer:
    """One private key, read when it is first needed; without one, a new one."""

    def __init__(self, key: str) -> None:
        self._pem = key

    def signed(self, claims: dict[str, Any]) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        head = f"{_text(_encode({'alg': 'ES256', 'kid': self.key_id}))}.{_text(_encode(claims))}"
        r, s = utils.decode_dss_signature(self._key.sign(head.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{head}.{_text(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

    def verified(self, token: str) -> dict[str, Any]:
        """The claims of a token that this key signed."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        try:
            head, claims, signature = token.split(".")
            raw = _bytes(signature)
            if len(raw) != _CURVE_BYTES or msgspec.json.decode(_bytes(head)).get("alg") != "ES256":
                raise InvalidToken("not signed with ES256")
            der = utils.encode_dss_signature(int.from_bytes(raw[:_HALF], "big"), int.from_bytes(raw[_HALF:], "big"))
            self._key.public_key().verify(der, f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
            found = msgspec.json.decode(_bytes(claims))
        except (ValueError, binascii.Error, msgspec.DecodeError, AttributeError, InvalidSignature) as error:
            raise InvalidToken(f"not a token of this cluster: {error or type(error).__name__}") from error
        if not isinstance(found, dict):
            raise InvalidToken("its claims are not an object")
        return found

    @cached_property
    def key_id(self) -> str:
        from cryptography.hazmat.primitives import serialization

        encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return _text(sha256(self._key.public_key().public_bytes(encoding, form)).digest())

    @property
    def key_set(self) -> dict[str, Any]:
        """The public key, as OpenID clients ask for it."""
        numbers = self._key.public_key().public_numbers()
        point = {name: _text(value.to_bytes(_HALF, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))}
        return {"keys": [{"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", **point}]}

    @cached_property
    def _key(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key((self._pem or new_key()).encode(), None)
        assert isinstance(key, EllipticCurvePrivateKey), "the key of service account tokens is of the P-256 curve"
        return key


def new_key() -> str:
    """A private key in PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, form, serialization.NoEncryption()).decode()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
