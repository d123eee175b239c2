"""Certificates, tokens and the kubeconfig: made at the first start, kept in the data directory, readable by its owner only."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from dray.apiserver.reviews import ADMIN, ANONYMOUS, READER, User

_YEARS: Final = 10
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Identity(msgspec.Struct, frozen=True):
    """What proves that the server is the server, and clients who they are."""

    ca: str
    certificate: str
    key: str
    admin_token: str
    reader_token: str

    def user(self, authorization: str) -> User:
        """Who an Authorization header belongs to."""
        scheme, _, token = authorization.partition(" ")
        found = self.by_token(token.strip()) if scheme.lower() == "bearer" else None
        return found or ANONYMOUS

    def by_token(self, token: str) -> User | None:
        given = token.encode()
        if hmac.compare_digest(given, self.admin_token.encode()):
            return ADMIN
        if hmac.compare_digest(given, self.reader_token.encode()):
            return READER
        return None

    def tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:  # the standard library reads only files
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def kubeconfig(self, url: str, token: str) -> str:
        """A kubeconfig in JSON, which is YAML."""
        cluster = {"server": url, "certificate-authority-data": base64.b64encode(self.ca.encode()).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "dray", "cluster": cluster}],
            "users": [{"name": "dray", "user": {"token": token}}],
            "contexts": [{"name": "dray", "context": {"cluster": "dray", "user": "dray", "namespace": "default"}}],
            "current-context": "dray",
        }
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def identity(directory: Path | None) -> Identity:
    """The identity of a data directory, made when there is none; without a directory a new one."""
    if directory is None:
        return _made()
    path = directory / "identity.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    made = _made()
    write_private(path, msgspec.json.encode(made))
    return made


def write_private(path: Path, data: bytes) -> None:
    """Replace a file at once, mode 0600 from its first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _made() -> Identity:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        start = datetime.now(UTC) - timedelta(hours=1)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=365 * _YEARS))
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    signing = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = (
        builder("dray-ca", "dray-ca", ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    names = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in _NAMES), *addresses])
    certificate = (
        builder("dray-apiserver", "dray-ca", key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity(
        ca=ca.public_bytes(pem).decode(),
        certificate=certificate.public_bytes(pem).decode(),
        key=private.decode(),
        admin_token=secrets.token_urlsafe(32),
        reader_token=secrets.token_urlsafe(32),
    )
