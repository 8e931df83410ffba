"""The self-signed certificate that a BMC comes with, one for each."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID_DAYS: Final = 3650


def obtain_certificate(directory: Path, name: str, address: IPv4Address, now: datetime) -> str:
    """PEM of the certificate in `directory` (bmc.pem, key in bmc.key), made first if it is not there."""
    certificate_path, key_path = directory / "bmc.pem", directory / "bmc.key"
    if certificate_path.exists() and key_path.exists():
        return certificate_path.read_text()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} BMC")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # BMCs have no clock to speak of; a certificate from the future would be refused.
        .not_valid_before((now - timedelta(days=1)).astimezone(UTC))
        .not_valid_after((now + timedelta(days=_VALID_DAYS)).astimezone(UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    key_path.touch(mode=0o600)
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    certificate_path.write_text(pem)
    return pem


def server_context(directory: Path) -> ssl.SSLContext:
    """TLS settings with the certificate in `directory`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "bmc.pem", directory / "bmc.key")
    return context
