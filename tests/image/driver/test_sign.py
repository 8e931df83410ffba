"""Signatures of modules: OpenSSL agrees with them, and what is altered, cut off, or of another key is refused."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.cli.service.image import image
from provisioner.image.module_signing import (
    MAGIC,
    ModuleKey,
    generate_module_key,
    read_module_key,
    split,
    verify_module,
    write_module_key,
)
from tests.image.driver.conftest import NOW
from tests.image.driver.fakes import fake_module

MODULE = fake_module("nvidia")


def test_a_signed_module_is_verified_and_is_the_same_each_time(module_key: ModuleKey) -> None:
    signed = module_key.sign(MODULE)
    verify_module(signed, module_key.certificate)
    assert split(signed)[0] == MODULE
    assert module_key.sign(MODULE) == signed


@pytest.mark.programs
def test_openssl_takes_the_signature_and_refuses_it_for_another_module(module_key: ModuleKey, tmp_path: Path) -> None:
    content, signature = split(module_key.sign(MODULE))
    certificate = x509.load_der_x509_certificate(module_key.certificate)
    (tmp_path / "signature").write_bytes(signature)
    (tmp_path / "certificate").write_bytes(certificate.public_bytes(encoding=Encoding.PEM))

    def openssl(module: bytes) -> int:
        (tmp_path / "module").write_bytes(module)
        words = ["openssl", "cms", "-verify", "-binary", "-inform", "DER", "-in", "signature", "-content", "module"]
        words += ["-certfile", "certificate", "-CAfile", "certificate", "-purpose", "any", "-out", "out"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode

    assert openssl(content) == 0
    assert openssl(content[:-1] + b"?") != 0


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_module_that_was_altered_is_refused(module_key: ModuleKey, place: int) -> None:
    signed = bytearray(module_key.sign(MODULE))
    end = len(MODULE)
    signed[place if place >= 0 else end - 1] ^= 1
    with pytest.raises(Refused, match="altered after it was signed"):
        verify_module(bytes(signed), module_key.certificate)


def test_a_module_that_nobody_or_another_key_has_signed_is_refused(module_key: ModuleKey) -> None:
    other = generate_module_key(NOW)
    with pytest.raises(Refused, match="not signed by CN=provisioner modules"):
        verify_module(MODULE, module_key.certificate)
    with pytest.raises(Refused, match="not signed by"):
        verify_module(other.sign(MODULE), module_key.certificate)


@pytest.mark.parametrize("place", [1, 100, 256, 258, 300])
def test_a_signature_that_was_altered_is_refused(module_key: ModuleKey, place: int) -> None:
    """The signature's own 256 bytes, and before them what says who signed."""
    content, signature = split(module_key.sign(MODULE))
    trailer = module_key.sign(MODULE)[len(content) + len(signature) :]
    altered = bytearray(signature)
    altered[-place] ^= 0x40
    with pytest.raises(Refused):
        verify_module(content + bytes(altered) + trailer, module_key.certificate)


@pytest.mark.parametrize(
    "tail",
    [
        MAGIC,
        b"\0" * 12 + MAGIC,
        b"\0\0\x02\0\0\0\0\0\xff\xff\xff\xff" + MAGIC,
        b"\0\0\x02\0\0\0\0\0\0\0\0\0" + MAGIC,
        b"\0\0\x01\0\0\0\0\0\0\0\0\x04" + MAGIC,
    ],
)
def test_a_tail_that_is_no_signature_is_refused(tail: bytes, module_key: ModuleKey) -> None:
    for module in (tail, MODULE + tail):
        with pytest.raises(Refused):
            verify_module(module, module_key.certificate)


def test_a_module_is_not_signed_twice(module_key: ModuleKey) -> None:
    with pytest.raises(Refused, match="signed already"):
        module_key.sign(module_key.sign(MODULE))


def test_the_certificate_says_that_its_key_signs_code_and_certifies_nobody() -> None:
    certificate = x509.load_der_x509_certificate(generate_module_key(NOW).certificate)
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    extended = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(extended) == [ExtendedKeyUsageOID.CODE_SIGNING]


def test_the_secret_shows_itself_nowhere(module_key: ModuleKey, tmp_path: Path) -> None:
    assert "PRIVATE" not in f"{module_key!r} {module_key}"
    secret, certificate = write_module_key(tmp_path / "keys", module_key)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert b"PRIVATE" not in certificate.read_bytes()
    assert read_module_key(secret) == module_key
    with pytest.raises(Refused, match="exists"):
        write_module_key(tmp_path / "keys", module_key)


def test_a_key_that_others_can_read_or_that_is_none_is_refused(module_key: ModuleKey, tmp_path: Path) -> None:
    secret, certificate = write_module_key(tmp_path, module_key)
    secret.chmod(0o640)
    with pytest.raises(NeedsHuman, match="can be read by others"):
        read_module_key(secret)
    secret.chmod(0o600)
    certificate.write_bytes(generate_module_key(NOW).certificate)
    with pytest.raises(Refused, match="is not the certificate of"):
        read_module_key(secret)
    certificate.write_bytes(b"PEM?")
    with pytest.raises(Refused, match="not DER"):
        read_module_key(secret)
    secret.write_text("hidden words")
    with pytest.raises(Refused, match="no private key") as told:
        read_module_key(secret)
    assert "hidden" not in str(told.value)
    assert told.value.__cause__ is None
    certificate.unlink()
    with pytest.raises(NotFound, match="image keygen"):
        read_module_key(secret)


def test_keygen_makes_the_key_of_images_and_that_of_modules_and_overwrites_neither(tmp_path: Path) -> None:
    made = CliRunner().invoke(image, ["keygen", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    names = ["image.pub", "image.sec", "module-signing.der", "module-signing.pem"]
    assert sorted(file.name for file in (tmp_path / "keys").iterdir()) == names
    assert "mokutil --import" in made.output
    key = read_module_key(tmp_path / "keys/module-signing.pem")
    verify_module(key.sign(MODULE), key.certificate)
    again = CliRunner().invoke(image, ["keygen", str(tmp_path / "keys")])
    assert isinstance(again.exception, Refused)
    assert read_module_key(tmp_path / "keys/module-signing.pem") == key


@pytest.mark.programs
def test_a_key_of_another_kind_is_refused(module_key: ModuleKey, tmp_path: Path) -> None:
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "ED25519"], capture_output=True, check=True)
    with pytest.raises(Refused, match="not RSA"):
        ModuleKey(module_key.certificate, Secret(made.stdout.decode())).sign(MODULE)
