"""A site's own authority for its boot hosts, and what that one signs. Pure: clock and keys are arguments.

Every certificate has key identifiers, so that of two authorities the right one is tried, whatever their names are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Secret

KeyType = Literal["ec", "rsa"]
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

RSA_BITS: Final = 3072
CLOCK_SKEW: Final = timedelta(hours=1)
"""A machine's clock may be behind before it has asked the time."""
MOST_AUTHORITY_DAYS: Final = 7300
MOST_SERVER_DAYS: Final = 397
MOST_NAMES: Final = 16


@dataclass(frozen=True)
class Authority:
    """A certificate that signs others, and its key, whose repr shows nothing."""

    certificate: x509.Certificate
    key_pem: Secret

    @property
    def key(self) -> PrivateKey:
        return _load_key(self.key_pem)

    @property
    def pem(self) -> str:
        return to_pem(self.certificate)


def generate_key(key_type: KeyType) -> Secret:
    """A private key as PEM (PKCS#8): P-256, or RSA of 3072 bits, which iPXE needs."""
    key: PrivateKey
    key = rsa.generate_private_key(65537, RSA_BITS) if key_type == "rsa" else ec.generate_private_key(ec.SECP256R1())
    return Secret(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def read_authority(certificate_pem: str, key_pem: Secret) -> Authority:
    """Raises: Refused unless the certificate is one authority's, and the key its own."""
    certificates = read_certificates(certificate_pem, "authority")
    if len(certificates) != 1:
        raise Refused(f"the authority's file has {len(certificates)} certificates", hint="name a file of one alone")
    authority = Authority(certificates[0], key_pem)
    _require_authority(authority.certificate)
    if authority.key.public_key() != authority.certificate.public_key():
        raise Refused("the key is not that of the authority's certificate", hint="name the key made with it")
    return authority


def read_certificates(pem: str, what: str) -> list[x509.Certificate]:
    """Raises: Refused if there is none, or a key beside them."""
    if "PRIVATE KEY" in pem:
        raise Refused(f"the file of the {what} has a private key in it", hint="name the file of certificates alone")
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise Refused(f"the file of the {what} is no PEM certificate: {error}", hint="name a PEM file") from error


def make_authority(name: str, key_pem: Secret, days: int, now: datetime) -> Authority:
    """One that signs itself. It may sign servers, and authorities that take its place. Raises: Refused."""
    subject, key = _name(name), _load_key(key_pem)
    builder = _begin(subject, subject, key.public_key(), now, _lifetime(days, MOST_AUTHORITY_DAYS))
    return Authority(_as_authority(builder, 1).sign(key, hashes.SHA256()), key_pem)


def issue_server_certificate(
    authority: Authority, key_pem: Secret, addresses: Sequence[str], days: int, now: datetime
) -> x509.Certificate:
    """For a boot host that servers reach at `addresses` (IP addresses; host names as well).

    Raises: Refused without an address, and where it would outlive its authority.
    """
    if not 1 <= len(addresses) <= MOST_NAMES:
        raise Refused(
            f"the certificate would have {len(addresses)} addresses, expected 1 to {MOST_NAMES}",
            hint="name what provisioner boot --address says: --address 10.80.0.1",
        )
    signer, key = authority.key, _load_key(key_pem)
    lifetime = _lifetime(days, MOST_SERVER_DAYS)
    _require_outlived(authority.certificate, now + lifetime)
    builder = (
        _begin(_name(f"boot host {addresses[0]}"), authority.certificate.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False, encrypts=isinstance(key, rsa.RSAPrivateKey)), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in addresses]), critical=False)
        .add_extension(_issuer_of(authority.certificate), critical=False)
    )
    return builder.sign(signer, hashes.SHA256())


def cross_sign(old: Authority, new: x509.Certificate, now: datetime) -> x509.Certificate:
    """The new authority's name and key, signed by the old one: sent behind a server's certificate it makes who knows
    the old one alone believe the new one, until either ends.

    Raises: Refused if they are one, or either is none or has ended.
    """
    _require_authority(new)
    if new.public_key() == old.certificate.public_key():
        raise Refused("the new authority is the old one", hint="name the new authority's certificate")
    constraints = old.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    if constraints.path_length == 0:
        raise Refused(
            f"authority {old.certificate.subject.rfc4514_string()} may sign servers alone (pathlen:0)",
            hint="announce the new one instead: provisioner boot tls announce",
        )
    ends = min(old.certificate.not_valid_after_utc, new.not_valid_after_utc)
    if ends <= now:
        raise Refused(f"one of the two authorities ended at {ends:%Y-%m-%d}", hint="announce the new one instead")
    builder = _begin(new.subject, old.certificate.subject, _public(new), now, ends - now)
    builder = _as_authority(builder, 0).add_extension(_issuer_of(old.certificate), critical=False)
    return builder.sign(old.key, hashes.SHA256())


def is_rsa(certificate: x509.Certificate) -> bool:
    """Whether iPXE can use it, whose TLS knows no other keys."""
    return isinstance(certificate.public_key(), rsa.RSAPublicKey)


def require_chain_for_ipxe(chain: Sequence[x509.Certificate]) -> None:
    """Raises: Refused if iPXE cannot check these certificates (a server's first): it knows RSA alone."""
    for each in chain:
        known = (
            isinstance(each.signature_hash_algorithm, hashes.SHA256 | hashes.SHA384 | hashes.SHA512)
            and each.signature_algorithm_oid in _RSA_SIGNATURES
        )
        if not is_rsa(each) or not known:
            raise Refused(
                f"iPXE cannot check certificate {each.subject.rfc4514_string()}: its key or its signature is not RSA "
                "with SHA-2",
                hint="issue it by an RSA authority: provisioner boot tls authority --key-type rsa, or leave out "
                "--ipxe-https",
            )


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    found = (extension.value for extension in certificate.extensions)
    return any(isinstance(each, x509.BasicConstraints) and each.ca for each in found)


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether that authority's key signed it."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def to_pem(*certificates: x509.Certificate) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


_RSA_SIGNATURES: Final = (
    x509.SignatureAlgorithmOID.RSA_WITH_SHA256,
    x509.SignatureAlgorithmOID.RSA_WITH_SHA384,
    x509.SignatureAlgorithmOID.RSA_WITH_SHA512,
)


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _as_authority(builder: x509.CertificateBuilder, path_length: int) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    usage = _usage(signs=True, encrypts=False)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _usage(*, signs: bool, encrypts: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        key_encipherment=encrypts,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issuer_of(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(_public(authority))
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _public(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise Refused(
            f"authority {certificate.subject.rfc4514_string()} has a key that is neither RSA nor of an elliptic curve",
            hint="make one: provisioner boot tls authority",
        )
    return key


def _require_authority(certificate: x509.Certificate) -> None:
    if not is_authority(certificate):
        raise Refused(
            f"certificate {certificate.subject.rfc4514_string()} is no authority's: it has no basicConstraints CA:TRUE",
            hint="name the certificate that signs those of boot hosts",
        )


def _require_outlived(authority: x509.Certificate, ends: datetime) -> None:
    last = authority.not_valid_after_utc
    if last < ends:
        raise Refused(
            f"the certificate would end at {ends:%Y-%m-%d}, after its authority ({last:%Y-%m-%d})",
            hint="give fewer --days, or make the next authority: docs/rotation.md",
        )


def _lifetime(days: int, most: int) -> timedelta:
    if not 1 <= days <= most:
        raise Refused(f"a lifetime of {days} days, expected 1 to {most}", hint="give another --days")
    return timedelta(days=days)


def _name(common_name: str) -> x509.Name:
    if not 1 <= len(common_name) <= 64 or not common_name.isprintable():
        raise Refused(f"name {common_name[:80]!r} is not 1 to 64 printable letters", hint="give a shorter --name")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("ascii").decode())
    except (UnicodeEncodeError, ValueError) as error:
        raise Refused(f"{name!r} is neither an IP address nor a host name", hint="write it as 10.80.0.1") from error


def _load_key(pem: Secret) -> PrivateKey:
    try:
        key = load_pem_private_key(pem.reveal().encode(), password=None)
    except (ValueError, TypeError) as error:  # its words may quote the file
        raise Refused("the key is no PEM private key without a passphrase", hint="name its file") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise Refused(
            "the key is neither RSA nor of an elliptic curve", hint="provisioner boot tls authority makes one"
        )
    return key
