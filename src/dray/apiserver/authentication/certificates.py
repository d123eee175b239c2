"""Certificates of clients: what a request for one must be, who may approve and sign it, and the signing itself.

Hooks and checks of CertificateSigningRequests. A request is written once; after that only its status changes: conditions
through ``approval``, the certificate through ``status``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from dray.api.kinds import CERTIFICATE_SIGNING_REQUESTS
from dray.api.names import subdomain
from dray.api.times import format_time
from dray.api.validation.errors import FieldError
from dray.apiserver.authentication.users import MASTERS
from dray.apiserver.authorization.attributes import Attributes, quoted
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.errors import forbidden
from dray.apiserver.registry import Context

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest

Object = dict[str, Any]

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
LEGACY: Final = "kubernetes.io/legacy-unknown"
SHORTEST: Final = 600
_YEAR: Final = 365 * 24 * 3600
_BACKDATE, _SHORT = 300, 8 * 3600
_MOST_BYTES: Final = 64 * 1024
_DECIDED: Final = ("Approved", "Denied")
_FINAL: Final = (*_DECIDED, "Failed")

# Key usages by the names of the API: which bit or extended purpose they are.
_BITS: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_PURPOSES: Final = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}
USAGES: Final = tuple(sorted((*_BITS, *_PURPOSES)))


class Unsignable(ValueError):
    """A request that its signer does not sign; the message says why."""


# -------------------------------------------------------------------------------------------------------------------- hooks


def prepare(request: Object, old: Object | None, context: Context) -> None:
    """Who asks is not for the client to say, and what was asked does not change."""
    if old is not None:
        request["spec"] = old["spec"]
        if context.subresource == "approval":
            request["status"] = (old.get("status") or {}) | {"conditions": (request.get("status") or {}).get("conditions") or []}
            _stamp(request, old, context.now)
        return
    spec = request["spec"]
    for field in ("username", "uid", "groups", "extra"):
        spec.pop(field, None)
    if context.caller is not None:
        spec |= context.caller.user.info


def prepare_status(request: Object, old: Object | None, context: Context) -> None:
    assert old is not None
    _keep_decisions(request, old)
    _stamp(request, old, context.now)


def _keep_decisions(request: Object, old: Object) -> None:
    """Approvals and denials stay as they are; one more or less of them is found out by the check."""
    conditions = (request.get("status") or {}).get("conditions") or []
    for kind in _DECIDED:
        before = [c for c in (old.get("status") or {}).get("conditions") or () if c.get("type") == kind]
        places = [index for index, c in enumerate(conditions) if c.get("type") == kind]
        if len(before) == len(places):
            for place, condition in zip(places, before, strict=True):
                conditions[place] = condition


def _stamp(request: Object, old: Object, now: float) -> None:
    before = {(c.get("type"), c.get("status")): c for c in (old.get("status") or {}).get("conditions") or ()}
    for condition in (request.get("status") or {}).get("conditions") or ():
        known = before.get((condition.get("type"), condition.get("status")), {})
        condition["lastUpdateTime"] = condition.get("lastUpdateTime") or format_time(now)
        condition["lastTransitionTime"] = (
            condition.get("lastTransitionTime") or known.get("lastTransitionTime") or format_time(now)
        )


# -------------------------------------------------------------------------------------------------------------------- checks


def check(request: Object, old: Object | None, context: Context) -> Iterator[FieldError]:
    if old is None:
        yield from _new(request)
        return
    _permitted(request, old, context)
    yield from _conditions(request)
    yield from _changes(request, old, context.subresource)


def admit(request: Object, old: Object | None, context: Context) -> None:
    """Nobody becomes an administrator by certificate."""
    if request["spec"].get("signerName") == CLIENT and MASTERS in organizations(parsed(request["spec"]["request"])):
        raise _forbidden(request, f"use of {CLIENT} signer with {MASTERS} group is not allowed")


def _permitted(request: Object, old: Object, context: Context) -> None:
    """Approving and signing need a right to the signer, beside the right to the subresource."""
    changed = (request.get("status") or {}) != (old.get("status") or {})
    verb = {"approval": "approve", "status": "sign" if changed else ""}.get(context.subresource, "")
    signer = old["spec"].get("signerName", "")
    if verb and context.caller is not None and not _may(context.caller, verb, signer):
        raise _forbidden(request, f"user not permitted to {verb} requests with signerName {quoted(signer)}")


def _may(caller: Caller, verb: str, signer: str) -> bool:
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(caller.may(Attributes(verb, CERTIFICATE_SIGNING_REQUESTS.group, "signers", name=name)) for name in names)


def _new(request: Object) -> Iterator[FieldError]:
    spec = request["spec"]
    try:
        _checked_signature(parsed(spec.get("request", "")))
    except Unsignable as error:
        yield FieldError("spec.request", "Invalid", spec.get("request", "")[:64], str(error))
    usages = spec.get("usages") or ()
    if not usages:
        yield FieldError("spec.usages", "Required", "")
    for index, usage in enumerate(usages):
        if usage not in USAGES:
            listed = ", ".join(f'"{known}"' for known in USAGES)
            yield FieldError(f"spec.usages[{index}]", "NotSupported", usage, f"supported values: {listed}")
        elif usage in usages[:index]:
            yield FieldError(f"spec.usages[{index}]", "Duplicate", usage)
    yield from _signer_name(spec.get("signerName") or "")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST:
        message = "may not specify a duration less than 600 seconds (10 minutes)"
        yield FieldError("spec.expirationSeconds", "Invalid", seconds, message)


def _signer_name(name: str) -> Iterator[FieldError]:
    path = "spec.signerName"
    domain, slash, rest = name.partition("/")
    if not name:
        yield FieldError(path, "Required", "")
    elif name == LEGACY:
        yield FieldError(path, "Invalid", name, "the legacy signerName is not allowed via this API version")
    elif not slash or not rest or "/" in rest:
        yield FieldError(path, "Invalid", name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
    elif subdomain(domain) or "." not in domain:
        yield FieldError(path, "Invalid", domain, "should be a domain with at least two segments separated by dots")


def _conditions(request: Object) -> Iterator[FieldError]:
    seen: list[str] = []
    for index, condition in enumerate((request.get("status") or {}).get("conditions") or ()):
        kind, status, path = condition.get("type") or "", condition.get("status") or "", f"status.conditions[{index}]"
        if not kind:
            yield FieldError(f"{path}.type", "Required", "")
        if not status:
            yield FieldError(f"{path}.status", "Required", "")
        elif kind in _FINAL and status != "True":
            yield FieldError(f"{path}.status", "NotSupported", status, 'supported values: "True"')
        if kind in seen:
            yield FieldError(f"{path}.type", "Duplicate", kind)
        seen.append(kind)
    if {"Approved", "Denied"} <= set(seen):
        last = [kind for kind in seen if kind in _DECIDED][-1]
        yield FieldError("status.conditions", "Invalid", last, "Approved and Denied conditions are mutually exclusive")


def _changes(request: Object, old: Object, subresource: str) -> Iterator[FieldError]:
    new, before = request.get("status") or {}, old.get("status") or {}
    for kind in _FINAL:
        counts = [sum(c.get("type") == kind for c in each.get("conditions") or ()) for each in (new, before)]
        if counts[0] < counts[1]:
            yield _may_not(f'remove a condition of type "{kind}"')
        elif counts[0] > counts[1] and kind in _DECIDED and subresource != "approval":
            yield _may_not(f'add a condition of type "{kind}"')
    if new.get("certificate") != before.get("certificate"):
        if subresource != "status":
            yield _may_not("set certificate content", "status.certificate")
        elif before.get("certificate"):
            yield _may_not("modify existing certificate content", "status.certificate")
        elif problem := _certificate_problem(new.get("certificate") or ""):
            yield FieldError("status.certificate", "Invalid", "<certificate data>", problem)


def trust_bundle(bundle: Object, old: Object | None, context: Context) -> Iterator[FieldError]:
    """A check of ClusterTrustBundles: the name says whose they are, and they are certificates."""
    spec, name = bundle["spec"], bundle["metadata"].get("name", "")
    prefix = spec.get("signerName", "").replace("/", ":") + ":"
    if spec.get("signerName") and not name.startswith(prefix):
        message = f"ClusterTrustBundle for signerName {spec['signerName']} must be named with prefix {prefix}"
        yield FieldError("metadata.name", "Invalid", name, message)
    if not spec.get("signerName") and ":" in name:
        message = 'ClusterTrustBundle without signer name must not have ":" in its name'
        yield FieldError("metadata.name", "Invalid", name, message)
    if old is not None and old["spec"].get("signerName") != spec.get("signerName"):
        yield FieldError("spec.signerName", "Invalid", spec.get("signerName", ""), "field is immutable")
    if problem := _certificate_problem(base64.b64encode(spec.get("trustBundle", "").encode()).decode()):
        yield FieldError("spec.trustBundle", "Invalid", "<value omitted>", problem)


def _may_not(what: str, path: str = "status.conditions") -> FieldError:
    return FieldError(path, "Forbidden", "", f"updates may not {what}")


def _certificate_problem(text: str) -> str:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(text))
    except ValueError as error:
        return f"must contain at least one CERTIFICATE PEM block: {error}"
    return "" if found else "must contain at least one CERTIFICATE PEM block"


def _forbidden(request: Object, why: str) -> Exception:
    return forbidden(CERTIFICATE_SIGNING_REQUESTS, request["metadata"].get("name", ""), why)


# ------------------------------------------------------------------------------------------------------------------- signing


def parsed(request: str) -> CertificateSigningRequest:
    """A request as it is stored: PEM in base64."""
    from cryptography import x509

    if len(request) > _MOST_BYTES:
        raise Unsignable(f"may not be more than {_MOST_BYTES} bytes")
    try:
        return x509.load_pem_x509_csr(base64.b64decode(request))
    except ValueError as error:
        raise Unsignable(f"PEM block type must be CERTIFICATE REQUEST: {error}") from error


def _checked_signature(request: CertificateSigningRequest) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        good = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Unsignable(str(error)) from error
    if not good:
        raise Unsignable("its signature is not valid")


def organizations(request: CertificateSigningRequest) -> list[str]:
    from cryptography.x509.oid import NameOID

    return [str(found.value) for found in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


class ClientAuthority:
    """Signs requests with one certificate and its key, both in PEM."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate, self._key = certificate, key

    def signed(self, spec: Object, now: float) -> str | None:
        """The certificate that a request asks for, as it is stored; None where somebody else signs. Raises Unsignable."""
        rules = {CLIENT: _client, KUBELET_CLIENT: _kubelet_client, KUBELET_SERVING: _kubelet_serving}
        rule = rules.get(spec.get("signerName", ""))
        if rule is None:
            return None
        request = parsed(spec["request"])
        rule(request, set(spec.get("usages") or ()))
        return base64.b64encode(self._sign(request, spec, now)).decode()

    def _sign(self, request: CertificateSigningRequest, spec: Object, now: float) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        authority = x509.load_pem_x509_certificate(self._certificate.encode())
        key = load_pem_private_key(self._key.encode(), None)
        assert isinstance(key, EllipticCurvePrivateKey), "the key of the authority for clients is of a curve"
        seconds = max(SHORTEST, min(spec.get("expirationSeconds") or _YEAR, _YEAR))
        start = datetime.fromtimestamp(now, UTC)
        ends = start + timedelta(seconds=seconds if seconds < _SHORT else seconds - _BACKDATE)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(authority.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start - timedelta(seconds=_BACKDATE))
            .not_valid_after(min(ends, authority.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        )
        for extension, critical in _extensions(request, spec.get("usages") or []):
            builder = builder.add_extension(extension, critical)
        return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _extensions(request: CertificateSigningRequest, usages: list[str]) -> Iterator[tuple[Any, bool]]:
    """What the certificate is for, and the names that the request gives."""
    from cryptography import x509

    bits = dict.fromkeys(_BITS.values(), False) | {_BITS[usage]: True for usage in usages if usage in _BITS}
    if any(bits.values()):
        yield x509.KeyUsage(**bits), True
    purposes = [x509.ObjectIdentifier(_PURPOSES[usage]) for usage in usages if usage in _PURPOSES]
    if purposes:
        yield x509.ExtendedKeyUsage(purposes), False
    try:
        yield request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value, False
    except x509.ExtensionNotFound:
        return


def _client(request: CertificateSigningRequest, usages: set[str]) -> None:
    for usage in sorted(usages - {"digital signature", "key encipherment", "client auth"}):
        raise Unsignable(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise Unsignable("missing required usage for client certificate: client auth")


def _kubelet_client(request: CertificateSigningRequest, usages: set[str]) -> None:
    _of_node(request, usages, "client auth")
    if _alternative_names(request):
        raise Unsignable("subjectAltNames are not allowed")


def _kubelet_serving(request: CertificateSigningRequest, usages: set[str]) -> None:
    _of_node(request, usages, "server auth")
    names = _alternative_names(request)
    if not names:
        raise Unsignable("DNS or IP subjectAltName is required")
    if any(type(name).__name__ not in ("DNSName", "IPAddress") for name in names):
        raise Unsignable("Email and URI subjectAltNames are not allowed")


def _of_node(request: CertificateSigningRequest, usages: set[str], purpose: str) -> None:
    from cryptography.x509.oid import NameOID

    names = [str(found.value) for found in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if organizations(request) != ["system:nodes"]:
        raise Unsignable("subject organization is not system:nodes")
    if not any(name.startswith("system:node:") for name in names):
        raise Unsignable("subject common name does not begin with system:node:")
    needed = {"digital signature", purpose}
    if usages - {"key encipherment"} != needed:
        raise Unsignable(f"usages did not match {sorted(needed | {'key encipherment'})}")


def _alternative_names(request: CertificateSigningRequest) -> list[Any]:
    from cryptography import x509

    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
