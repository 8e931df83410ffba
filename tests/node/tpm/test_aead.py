"""AES-256-GCM and HKDF by the libcrypto of Python's ssl, against the vectors that are published, and `cryptography`."""

from __future__ import annotations

import _ssl
import os
import ssl
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from provisioner.node.tpm import aead
from provisioner.node.tpm.aead import AeadError, hkdf_sha256, open_sealed

KEY_15 = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
NONCE_15 = "cafebabefacedbaddecaf888"
PLAIN_15 = (
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
    "b16aedf5aa0de657ba637b391aafd255"
)
CIPHER_15 = (
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
    "c5f61e6393ba7a0abcc9f662898015ad"
)

# The test cases 13 to 16 of "The Galois/Counter Mode of Operation (GCM)", as submitted to NIST.
GCM = {
    "13, nothing": ("00" * 32, "00" * 12, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
    "14, a block of zeros": (
        "00" * 32,
        "00" * 12,
        "",
        "00" * 16,
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ),
    "15, four blocks": (KEY_15, NONCE_15, "", PLAIN_15, CIPHER_15, "b094dac5d93471bdec1a502270e3cc6c"),
    "16, with additional data": (
        KEY_15,
        NONCE_15,
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        PLAIN_15[:120],
        CIPHER_15[:120],
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
}


@pytest.mark.parametrize("case", GCM)
def test_the_published_vectors_are_opened(case: str) -> None:
    key, nonce, additional, plain, cipher, tag = (bytes.fromhex(value) for value in GCM[case])
    assert open_sealed(key, nonce, cipher + tag, additional) == plain


@pytest.mark.parametrize("case", GCM)
@pytest.mark.parametrize("part", ["key", "nonce", "ciphertext", "tag", "additional"])
def test_with_one_bit_changed_nothing_is_opened(case: str, part: str) -> None:
    key, nonce, additional, _, cipher, tag = (bytes.fromhex(value) for value in GCM[case])
    parts = {"key": key, "nonce": nonce, "ciphertext": cipher, "tag": tag, "additional": additional}
    whole = parts[part] or b"\0"  # where there was none, something is
    parts[part] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(AeadError, match="sealed for another machine, request or server, or altered"):
        open_sealed(parts["key"], parts["nonce"], parts["ciphertext"] + parts["tag"], parts["additional"])


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4096, 100_000])
def test_what_cryptography_seals_is_opened(size: int) -> None:
    key, nonce, plain = os.urandom(32), os.urandom(12), os.urandom(size)
    assert open_sealed(key, nonce, AESGCM(key).encrypt(nonce, plain, b"r01-u01"), b"r01-u01") == plain


@pytest.mark.parametrize(
    ("key", "nonce", "ciphertext"),
    [
        (bytes(16), bytes(12), bytes(32)),
        (bytes(32), bytes(16), bytes(32)),
        (bytes(32), bytes(12), bytes(15)),
        (bytes(32), bytes(12), b""),
        (bytes(32), bytes(12), bytes(aead.MAX_BYTES + 1)),
    ],
)
def test_what_has_the_wrong_size_is_refused(key: bytes, nonce: bytes, ciphertext: bytes) -> None:
    with pytest.raises(AeadError, match="bytes"):
        open_sealed(key, nonce, ciphertext, b"")


@pytest.mark.programs
def test_it_is_the_library_that_pythons_ssl_has_loaded() -> None:
    program = (
        "import provisioner.node.tpm.aead as aead, re\n"
        "aead._libcrypto()\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'crypto' in line})\n"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert [path.rpartition("/")[2].split(".so")[0] for path in loaded] == ["libcrypto"]


def test_another_library_than_that_of_ssl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "OPENSSL_VERSION_NUMBER", 1)
    with pytest.raises(AeadError, match="Python's ssl has 0x1"):
        open_sealed(bytes(32), bytes(12), bytes(16), b"")


def test_a_python_whose_ssl_has_no_libcrypto_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ssl, "__file__", "/nowhere/_ssl.so")
    with pytest.raises(AeadError, match=r"ssl \(/nowhere/_ssl.so\) gives no libcrypto"):
        open_sealed(bytes(32), bytes(12), bytes(16), b"")


# RFC 5869, A.1 to A.3.
HKDF = {
    "A.1": (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    "A.2": (
        bytes(range(0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    "A.3": (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
}


@pytest.mark.parametrize("case", HKDF)
def test_the_published_keys_are_derived(case: str) -> None:
    secret, salt, info, expected = (bytes.fromhex(value) for value in HKDF[case])
    assert hkdf_sha256(secret, salt=salt, info=info, size=len(expected)) == expected
