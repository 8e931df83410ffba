"""A CertificateSigningRequest as the approver looks at it: who asked, and what for. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from provisioner.cluster.source import conditions_of
from provisioner.cluster.trim import IDENTITY, MOST_ENTRIES, VALUE_LETTERS, picked, without_managed_fields

CREDENTIAL_EXTRA: Final = "authentication.kubernetes.io/credential-id"
MAX_PEM_BYTES: Final = 16_384
MAX_REQUEST_BYTES: Final = 2 * MAX_PEM_BYTES
"""Of the whole object, the PEM in base64 among it."""

_EXTENSION_REQUEST: Final = "1.2.840.113549.1.9.14"
_MIN_RSA_BITS: Final = 2048
_MAX_RSA_BITS: Final = 8192
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_COMMON_NAME: Final = re.compile(rb"\x06\x03\x55\x04\x03(.)(?:([\x00-\x7f])|\x81(.)|\x82(..))", re.DOTALL)
"""In DER: object id 2.5.4.3, then the string's tag and its length, which is one byte, or the one or two that follow."""
_WIDE_STRINGS: Final = {0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""By their tag: UniversalString and BMPString. The other strings are read as UTF-8."""
_MAX_NAME_BYTES: Final = 4 * 300
"""A longer one names no Server, in whichever encoding."""


class SubjectError(ValueError):
    """The PEM is not one well-formed request whose signature is right."""


@dataclass(frozen=True, kw_only=True)
class CertificateRequest:
    """What the API server knows of a request. It vouches for username, groups and credential."""

    name: str
    signer: str
    username: str
    groups: tuple[str, ...]
    credential: str | None
    usages: tuple[str, ...]
    expiration_seconds: int | None
    pem: bytes


@dataclass(frozen=True, kw_only=True)
class CertificateSubject:
    """What the request asks for, out of its PEM.

    `other`: further things that it carries (emails, URIs, extensions…). `weakness`: what is wrong with its key, if
    anything.
    """

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]
    other: tuple[str, ...]
    weakness: str | None


def read_request(csr: Mapping[str, Any]) -> CertificateRequest:
    """Read the object of the API server."""
    spec = csr["spec"]
    extra = spec.get("extra") or {}
    credentials = extra.get(CREDENTIAL_EXTRA) or []
    try:
        pem = base64.b64decode(spec.get("request") or "", validate=True)
    except binascii.Error:
        pem = b""
    return CertificateRequest(
        name=csr["metadata"]["name"],
        signer=spec.get("signerName") or "",
        username=spec.get("username") or "",
        groups=tuple(spec.get("groups") or ()),
        credential=credentials[0] if len(credentials) == 1 else None,
        usages=tuple(spec.get("usages") or ()),
        expiration_seconds=spec.get("expirationSeconds"),
        pem=pem,
    )


def trim_request(csr: dict[str, Any]) -> dict[str, Any]:
    """What a copy keeps: the object as it is, for a decision is written back with it; of one that is larger than any
    kubelet's, or was denied, that it is there. See `is_whole`."""
    without_managed_fields(csr)
    denied = conditions_of(csr, "Denied")
    if not denied and len(json.dumps(csr)) <= MAX_REQUEST_BYTES:
        return csr
    spec, status = csr["spec"], csr.get("status") or {}
    conditions = [picked(each, ("type", "status", "reason"), VALUE_LETTERS) for each in conditions_of(csr)]
    issued = picked(status, ("certificate",)) if len(status.get("certificate") or "") <= MAX_REQUEST_BYTES else {}
    return {
        **picked(csr, ("apiVersion", "kind")),
        "metadata": picked(csr["metadata"], (*IDENTITY, "creationTimestamp")),
        "spec": {
            **picked(spec, ("signerName", "username"), _MAX_NAME_BYTES),
            "extra": {key: each[:1] for key, each in picked(spec.get("extra"), (CREDENTIAL_EXTRA,)).items()},
        },
        "status": {"conditions": conditions[:MOST_ENTRIES], **issued},
    }


def is_whole(csr: Mapping[str, Any]) -> bool:
    """Whether it is as the API server has it, but for who owns which field."""
    return "request" in csr["spec"]


def is_decided(csr: Mapping[str, Any]) -> bool:
    """Whether somebody approved, denied or failed it."""
    return bool(conditions_of(csr))


def issued_credential(csr: Mapping[str, Any]) -> str | None:
    """The credential id of the certificate that was issued, or None if there is none yet.

    Source: Kubernetes, k8s.io/apiserver/pkg/authentication/request/x509: `X509SHA256=` and the hex SHA-256 of the DER.
    """
    encoded = (csr.get("status") or {}).get("certificate")
    if not encoded:
        return None
    certificate = x509.load_pem_x509_certificates(base64.b64decode(encoded))[0]
    return "X509SHA256=" + hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def common_names(pem: bytes, prefix: str) -> tuple[str, ...]:
    """Every common name in the PEM that begins with `prefix`, each once, whatever else is wrong with it: whose name is
    asked for must be known of a request that cannot be read, too. Of what a parser takes for a request none is missed.

    The work grows with the size of the PEM and no faster: it is as large as its sender likes, up to 1.5 MB.
    """
    found: dict[str, None] = {}
    for block in pem.split(b"-----BEGIN ")[1:]:
        lines = block.partition(b"-----END ")[0].splitlines()[1:]
        try:
            der = base64.b64decode(b"".join(line for line in lines if b":" not in line))  # the others are headers
        except binascii.Error:
            continue
        for match in _COMMON_NAME.finditer(der):
            tag, *lengths = match.groups()
            length = int.from_bytes(next(length for length in lengths if length is not None), "big")
            if length <= _MAX_NAME_BYTES:
                value = der[match.end() : match.end() + length]
                name = value.decode(_WIDE_STRINGS.get(tag[0], "utf-8"), "replace")
                if name.startswith(prefix):
                    found[name] = None
    return tuple(found)


def read_subject(pem: bytes) -> CertificateSubject:
    """Parse the PEM of a request. Raises: SubjectError, and nothing else."""
    if len(pem) > MAX_PEM_BYTES or pem.count(b"-----BEGIN ") != 1:
        raise SubjectError("the request is not one PEM block")
    try:
        csr = x509.load_pem_x509_csr(pem)
        if not csr.is_signature_valid:
            raise SubjectError("the request is not signed by its own key")
        names = csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        organizations = csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        alternative, other = _alternative_names(csr)
        key = csr.public_key()
        attributes = Counter(attribute.oid.dotted_string for attribute in csr.attributes)
    except SubjectError:
        raise
    except Exception as error:
        # The API server's parser (Go) takes more than this one, which raises whatever it meets: KeyError for an unknown
        # TLS feature, exceptions of its own for a version or a kind of name. None of it may leave a request undecided.
        raise SubjectError(f"the request cannot be read: {type(error).__name__}: {error}") from error
    if len(names) + len(organizations) != len(list(csr.subject)):
        other.append("further subject attributes")
    if len(names) != 1:
        raise SubjectError(f"the subject has {len(names)} common names, not one")
    # Go merges several extension requests, cryptography reads the first one: what was hidden in the second would pass.
    if set(attributes) - {_EXTENSION_REQUEST} or attributes[_EXTENSION_REQUEST] > 1:
        other.append("further request attributes")
    dns_names = tuple(name.value for name in alternative if isinstance(name, x509.DNSName))
    addresses = tuple(
        name.value
        for name in alternative
        if isinstance(name, x509.IPAddress) and isinstance(name.value, ipaddress.IPv4Address | ipaddress.IPv6Address)
    )
    if len(dns_names) + len(addresses) != len(alternative):
        other.append("alternative names that are neither DNS names nor addresses")
    return CertificateSubject(
        common_name=str(names[0].value),
        organizations=tuple(str(organization.value) for organization in organizations),
        dns_names=dns_names,
        ip_addresses=addresses,
        other=tuple(other),
        weakness=_weakness(key),
    )


def _alternative_names(csr: x509.CertificateSigningRequest) -> tuple[list[x509.GeneralName], list[str]]:
    names: list[x509.GeneralName] = []
    other: list[str] = []
    for extension in csr.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names.extend(extension.value)
        else:
            other.append(f"extension {extension.oid.dotted_string}")
    return names, other


def _weakness(key: object) -> str | None:
    if isinstance(key, ed25519.Ed25519PublicKey):
        return None
    if isinstance(key, ec.EllipticCurvePublicKey):
        return None if isinstance(key.curve, _CURVES) else f"curve {key.curve.name} is not P-256, P-384 or P-521"
    if isinstance(key, rsa.RSAPublicKey):
        if _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS:
            return None
        return f"RSA key has {key.key_size} bits, not {_MIN_RSA_BITS} to {_MAX_RSA_BITS}"
    return f"key type {type(key).__name__} is not RSA, ECDSA or Ed25519"
