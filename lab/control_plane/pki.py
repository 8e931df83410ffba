"""Keys and certificates of a control plane, made with `cryptography`: what kubeadm makes, for a lab's lifetime.

Two authorities as in production: one for the cluster, one for etcd alone, so that no certificate of the cluster opens
etcd. Everything is written once; a directory that already holds the files is left as it is.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = timedelta(days=365)
CLOCK_SKEW: Final = timedelta(hours=1)  # a virtual machine's clock may be behind

_CA_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
_LEAF_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    key_encipherment=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class KeyPair:
    """Where a certificate and its key lie."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority that issues into its own directory."""

    files: KeyPair
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, directory: Path, name: str) -> Authority:
        """Read the authority `directory`/`name`.{crt,key}, or make it."""
        files = KeyPair(directory / f"{name}.crt", directory / f"{name}.key")
        if files.certificate.exists() and files.key.exists():
            key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - this class wrote it
            return cls(files, x509.load_pem_x509_certificate(files.certificate.read_bytes()), key)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"lab-{name}")])
        certificate = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(files, certificate, key)
        return cls(files, certificate, key)

    def issue(
        self,
        name: str,
        common_name: str,
        *,
        organization: str | None = None,
        server_names: Sequence[str] = (),
    ) -> KeyPair:
        """Write `name`.{crt,key} beside the authority, unless both exist for the same names.

        `server_names` (host names and addresses) make it a server's certificate as well as a client's.
        """
        files = KeyPair(self.files.certificate.parent / f"{name}.crt", self.files.certificate.parent / f"{name}.key")
        if files.certificate.exists() and files.key.exists() and _names_of(files.certificate) == set(server_names):
            return files
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if server_names else [])
        builder = (
            _builder(x509.Name(attributes), self.certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_LEAF_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if server_names:
            names = x509.SubjectAlternativeName([_general_name(server) for server in server_names])
            builder = builder.add_extension(names, critical=False)
        _write(files, builder.sign(self.key, hashes.SHA256()), key)
        return files


def create_key(path: Path) -> Path:
    """A private key without a certificate, such as the one that signs service accounts' tokens."""
    if not path.exists():
        _write_private(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def render_kubeconfig(server_url: str, ca_pem: bytes, pair: KeyPair, *, user: str) -> str:
    """A kubeconfig with everything inside, so that it can be copied elsewhere."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    cluster = {"server": server_url, "certificate-authority-data": encoded(ca_pem)}
    credentials = {
        "client-certificate-data": encoded(pair.certificate.read_bytes()),
        "client-key-data": encoded(pair.key.read_bytes()),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }
    return yaml.safe_dump(content, sort_keys=False)


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: Path) -> set[str]:
    extensions = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _write(files: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _write_private(files.key, key)
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,  # the API server reads no PKCS#8 EC key here
            serialization.NoEncryption(),
        )
    )
