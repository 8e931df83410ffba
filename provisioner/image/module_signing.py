"""Signatures of kernel modules, as the kernel's own scripts/sign-file makes them: PKCS #7, appended to the module.

Under Secure Boot the kernel loads only modules that are signed by a key that the machine knows: one in its `db`, or one
that was enrolled as a machine owner's key (MOK). The key is used here, in this process: no other one sees it, and no
file but its own has it.
Source: Linux, scripts/sign-file.c and kernel/module/signing.c; RFC 2315.
"""

from __future__ import annotations

import datetime
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.image.tools.private_files import must_be_private, write_key_pair

MAGIC: Final = b"~Module signature appended~\n"
_PKCS7: Final = 2
_TRAILER: Final = struct.Struct(">BBBBB3xI")
_BITS: Final = 2048
"""Of the key: many firmwares take no longer one into their `db`."""
_YEARS: Final = 20
_SECRET, _CERTIFICATE = "module-signing.pem", "module-signing.der"


@dataclass(frozen=True)
class ModuleKey:
    """A key that signs modules, and the certificate by which kernels check it. Its repr shows neither."""

    certificate: bytes = field(repr=False)
    """DER, as mokutil and firmware take it."""
    secret: Secret
    """PEM of the private key."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as `mokutil --list-enrolled` and `openssl x509 -fingerprint` show it."""
        return _certificate(self.certificate).fingerprint(hashes.SHA256()).hex()

    def sign(self, module: bytes) -> bytes:
        """The module with its signature. The same bytes of the same module and key, always.

        Raises: Refused if it is signed already.
        """
        if module.endswith(MAGIC):
            raise Refused("the module is signed already", hint="sign what the compiler made")
        key = serialization.load_pem_private_key(self.secret.reveal().encode(), None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise Refused("the module signing key is not RSA", hint="make one: provisioner image keygen")
        options = [
            pkcs7.PKCS7Options.DetachedSignature,
            pkcs7.PKCS7Options.Binary,
            pkcs7.PKCS7Options.NoAttributes,
            pkcs7.PKCS7Options.NoCerts,
        ]
        builder = pkcs7.PKCS7SignatureBuilder().set_data(module)
        signature = builder.add_signer(_certificate(self.certificate), key, hashes.SHA256()).sign(
            serialization.Encoding.DER, options
        )
        return module + signature + _TRAILER.pack(0, 0, _PKCS7, 0, 0, len(signature)) + MAGIC


def generate_module_key(now: datetime.datetime) -> ModuleKey:
    """A new key, with a certificate that says it signs code and is no authority over others."""
    key = rsa.generate_private_key(65537, _BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"provisioner modules {os.urandom(4).hex()}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(os.urandom(16), "big") >> 1 or 1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_only_signs(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ModuleKey(certificate.public_bytes(serialization.Encoding.DER), Secret(encoded.decode()))


def _only_signs() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def split(module: bytes) -> tuple[bytes, bytes]:
    """A module's own bytes, and its signature in DER; that is empty if the module is not signed.

    Raises: Refused if what is appended is no signature of this kind.
    """
    if not module.endswith(MAGIC):
        return module, b""
    end = len(module) - len(MAGIC) - _TRAILER.size
    if end < 0:
        raise Refused("the module's signature is cut off", hint="build it again")
    _, _, kind, signer, key_id, size = _TRAILER.unpack_from(module, end)
    if (kind, signer, key_id) != (_PKCS7, 0, 0) or not 0 < size <= end:
        raise Refused(
            "the module's signature is not PKCS #7, or has another length than it says", hint="build it again"
        )
    return module[: end - size], module[end - size : end]


def verify_module(module: bytes, certificate: bytes) -> None:
    """Raises: Refused unless the module is whole and signed by the key of that certificate (DER)."""
    content, signature = split(module)
    loaded = _certificate(certificate)
    key = loaded.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise Refused("the module signing certificate is not RSA", hint="make one: provisioner image keygen")
    size = key.key_size // 8
    # Nothing follows the signature itself, where no attributes were asked for; who signed stands before it.
    header = b"\x04\x82" + size.to_bytes(2, "big")
    signer = loaded.issuer.public_bytes() + _integer(loaded.serial_number)
    if signature[-size - len(header) : -size] != header or signer not in signature:
        raise Refused(
            f"the module is not signed by {loaded.subject.rfc4514_string()}", hint="build it with --module-key"
        )
    try:
        key.verify(signature[-size:], content, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise Refused("the module was altered after it was signed", hint="build it again") from error


def _integer(number: int) -> bytes:
    """DER of a positive INTEGER of less than 128 bytes."""
    content = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return bytes((2, len(content))) + content


def _certificate(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise Refused(
            f"the module signing certificate is not DER: {error}",
            hint="convert it: openssl x509 -in FILE -outform DER",
        ) from error


def write_module_key(folder: Path, key: ModuleKey) -> tuple[Path, Path]:
    """Write `module-signing.pem` (mode 0600) and `.der`. Raises: Refused if one exists: a key is never overwritten."""
    secret_file, certificate_file = folder / _SECRET, folder / _CERTIFICATE
    write_key_pair(secret_file, key.secret, certificate_file, key.certificate)
    return secret_file, certificate_file


def read_module_key(secret_file: Path) -> ModuleKey:
    """The key, with the certificate that lies beside it under the same name, `.der`.

    Raises: NotFound without a file; NeedsHuman if others may read the key; Refused if the two are not one pair.
    """
    certificate_file = secret_file.with_suffix(".der")
    for file in (secret_file, certificate_file):
        if not file.is_file():
            raise NotFound(
                f"module signing key {file} does not exist",
                hint=f"make one with its certificate: provisioner image keygen {secret_file.parent}",
            )
    must_be_private("module signing key", secret_file, secret_file.stat().st_mode)
    key = ModuleKey(certificate_file.read_bytes(), Secret(secret_file.read_text()))
    try:
        loaded = serialization.load_pem_private_key(key.secret.reveal().encode(), None)
    except (ValueError, TypeError):
        # Without the cause: its words could show what is in the file.
        raise Refused(f"{secret_file} is no private key in PEM without a passphrase", hint="restore it") from None
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    theirs = _certificate(key.certificate).public_key().public_bytes(encoding, form)
    if loaded.public_key().public_bytes(encoding, form) != theirs:
        raise Refused(
            f"{certificate_file} is not the certificate of {secret_file}", hint="restore the one or the other"
        )
    return key
