"""Certificates, keys and tokens: made at the first start, kept in the data directory, readable by its owner only."""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from dray.apiserver.authentication.certificates import ClientAuthority
from dray.apiserver.authentication.tokens import new_key
from dray.apiserver.journal import JournalError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.x509 import Certificate, CertificateBuilder

_YEARS: Final = 10
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Identity(msgspec.Struct, frozen=True):
    """What proves that the server is the server, and clients who they are.

    ``client_ca`` and its key sign certificates of clients, ``account_key`` tokens of service accounts.
    """

    ca: str
    certificate: str
    key: str
    admin_token: str
    reader_token: str
    client_ca: str = ""
    client_ca_key: str = ""
    account_key: str = ""

    @property
    def client_authority(self) -> ClientAuthority:
        return ClientAuthority(self.client_ca, self.client_ca_key)

    def tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.client_ca)
        with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:  # the standard library reads only files
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def identity(directory: Path | None) -> Identity:
    """The identity of a data directory, made when there is none; without a directory a new one."""
    if directory is None:
        return _made()
    path = directory / "identity.json"
    found = _kept(path)
    if found is not None and found.account_key:
        path.chmod(0o600)  # it has the keys of the cluster, whoever copied it here
        return found
    made = _made() if found is None else _completed(found)
    write_private(path, msgspec.json.encode(made))
    return made


def _kept(path: Path) -> Identity | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        advice = "move it away to get a new one, with new tokens"
        raise JournalError(f"{path} is not an identity file of Dray ({error}); {advice}") from error


def write_private(path: Path, data: bytes) -> None:
    """Replace a file at once, mode 0600 from its first byte. What a link leads to is meant; what is no file (``/dev/null``, a
    pipe) is written to and stays what it is."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = path.resolve()
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
    """A new identity."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca, ca_key = _authority("dray-ca")
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    names = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in _NAMES), *addresses])
    certificate = (
        _certificate("dray-apiserver", "dray-ca", key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    made = Identity(
        ca=_pem(ca),
        certificate=_pem(certificate),
        key=_private(key),
        admin_token=secrets.token_urlsafe(32),
        reader_token=secrets.token_urlsafe(32),
    )
    return _completed(made)


def _completed(identity: Identity) -> Identity:
    """With what identities of earlier versions lack."""
    client_ca, client_ca_key = _authority("dray-client-ca")
    return msgspec.structs.replace(
        identity, client_ca=_pem(client_ca), client_ca_key=_private(client_ca_key), account_key=new_key()
    )


def _authority(name: str) -> tuple[Certificate, EllipticCurvePrivateKey]:
    """A certificate that signs others, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    signing = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    certificate = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _certificate(subject: str, issuer: str, key: EllipticCurvePublicKey) -> CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

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


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _private(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
