"""Signatures as OpenBSD's signify makes and checks them: Ed25519, a key number, one comment line and one of base64.

stage-1 checks them with signify itself; here they are made with `cryptography`.
Source: OpenBSD, usr.bin/signify/signify.c.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.image.tools.private_files import must_be_private, write_key_pair

_ALGORITHM: Final = b"Ed"
_COMMENT: Final = "untrusted comment: "
_NO_KDF: Final = b"BK" + (0).to_bytes(4, "big")
_KEY_NUMBER_BYTES: Final = 8
MOST_KEYS: Final = 4
"""In one file: the old and the new one while they are exchanged, and room for a second site's."""


class SignatureVerifier(Protocol):
    """Who can tell whether a manifest was signed by somebody who is believed: a key, or several of them."""

    def verify(self, message: bytes, signature: str) -> None:
        """Raises: Refused unless `signature` is one of `message`."""


def signing_key_number(signature: str) -> bytes:
    """Number of the key that a signature says it is by: a claim, which `verify` proves. Raises: Refused."""
    return _payload(signature, 2 + _KEY_NUMBER_BYTES + 64, "signature")[2:10]


@dataclass(frozen=True)
class PublicKey:
    """What checks a manifest; built into stage-1."""

    number: bytes
    key: bytes

    def encode(self) -> str:
        return _lines("provisioner image public key", _ALGORITHM + self.number + self.key)

    @classmethod
    def decode(cls, text: str) -> PublicKey:
        """Raises: Refused if it is not a signify public key."""
        data = _payload(text, 2 + _KEY_NUMBER_BYTES + 32, "public key")
        return cls(data[2:10], data[10:])

    def verify(self, message: bytes, signature: str) -> None:
        """Raises: Refused unless `signature` is one of `message` by this key."""
        data = _payload(signature, 2 + _KEY_NUMBER_BYTES + 64, "signature")
        _require_number(data[2:10], (self,))
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(data[10:], message)
        except InvalidSignature as error:
            raise Refused(
                "the signature is not one of this manifest: either was altered",
                hint="publish the image again from its build",
            ) from error


@dataclass(frozen=True)
class PublicKeys:
    """Keys of which each is believed, while one takes the place of another. docs/rotation.md."""

    keys: tuple[PublicKey, ...]

    def encode(self) -> str:
        return "".join(key.encode() for key in self.keys)

    @classmethod
    def decode(cls, text: str) -> PublicKeys:
        """The keys of a file, one after the other. Raises: Refused if one is none, or for too many; as `of`."""
        lines = text.splitlines()
        pairs = ["\n".join(lines[at : at + 2]) for at in range(0, max(len(lines), 1), 2)]
        if len(pairs) > MOST_KEYS:
            raise Refused(f"the file has {len(pairs)} public keys, more than {MOST_KEYS}", hint="take old ones out")
        return cls.of(*(PublicKey.decode(pair) for pair in pairs))

    @classmethod
    def of(cls, *keys: PublicKey) -> PublicKeys:
        """Each once. Raises: Refused for two different keys of one number, of which a signature could mean either."""
        once = tuple(dict.fromkeys(keys))
        if len({key.number for key in once}) < len(once):
            raise Refused("two public keys have one number", hint="make another key: provisioner image keygen")
        return cls(once)

    def verify(self, message: bytes, signature: str) -> None:
        """Raises: Refused unless `signature` is one of `message` by one of the keys."""
        number = signing_key_number(signature)
        _require_number(number, self.keys)
        next(key for key in self.keys if key.number == number).verify(message, signature)


def _require_number(number: bytes, keys: tuple[PublicKey, ...]) -> None:
    if number not in {key.number for key in keys}:
        raise Refused(
            f"the manifest is signed with key {number.hex()}, not with {' or '.join(key.number.hex() for key in keys)}",
            hint="sign it with the key that this image's stage-1 has, or name that key",
        )


@dataclass(frozen=True)
class SecretKey:
    """What signs a manifest. Its repr shows the key number only."""

    number: bytes
    seed: Secret

    @classmethod
    def generate(cls, random: Callable[[int], bytes] = os.urandom) -> SecretKey:
        return cls(random(_KEY_NUMBER_BYTES), Secret(random(32).hex()))

    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.seed.reveal()))

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.number, self._private().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, message: bytes) -> str:
        return _lines("verify with image.pub", _ALGORITHM + self.number + self._private().sign(message))

    def encode(self) -> Secret:
        """The file's text, in signify's format without a passphrase: the file's mode is what guards it."""
        seed = self._private().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        key = seed + self.public.key
        checksum = hashlib.sha512(key).digest()[:8]
        body = _ALGORITHM + _NO_KDF + b"\0" * 16 + checksum + self.number + key
        return Secret(_lines("provisioner image secret key", body))

    @classmethod
    def decode(cls, text: Secret) -> SecretKey:
        """Raises: Refused if it is not a signify secret key, or one with a passphrase."""
        data = _payload(text.reveal(), 2 + 6 + 16 + 8 + 8 + 64, "secret key")
        rounds, checksum, number, key = data[2:8], data[24:32], data[32:40], data[40:]
        if rounds != _NO_KDF:
            raise Refused(
                "the secret key has a passphrase", hint="make one without: provisioner image keygen, or signify -G -n"
            )
        if hashlib.sha512(key).digest()[:8] != checksum:
            raise Refused("the secret key is damaged: its checksum differs", hint="restore it, or make another one")
        return cls(number, Secret(key[:32].hex()))


def write_keys(folder: Path, key: SecretKey) -> tuple[Path, Path]:
    """Write `image.sec` (mode 0600) and `image.pub`. Raises: Refused if one exists: a key is never overwritten."""
    secret_file, public_file = folder / "image.sec", folder / "image.pub"
    write_key_pair(secret_file, key.encode(), public_file, key.public.encode().encode())
    return secret_file, public_file


def read_secret_key(file: Path) -> SecretKey:
    """Raises: NotFound without the file; NeedsHuman if others may read it; Refused if it is no key."""
    try:
        mode = file.stat().st_mode
        text = Secret(file.read_text())
    except FileNotFoundError as error:
        raise NotFound(
            f"signing key {file} does not exist", hint=f"make one: provisioner image keygen {file.parent}"
        ) from error
    must_be_private("signing key", file, mode)
    return SecretKey.decode(text)


def read_public_key(file: Path) -> PublicKey:
    """Raises: NotFound without the file; Refused if it is no key."""
    return PublicKey.decode(_read_public(file))


def read_public_keys(file: Path) -> PublicKeys:
    """All keys of a file, `cat old.pub new.pub`. Raises: as `read_public_key`."""
    return PublicKeys.decode(_read_public(file))


def _read_public(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError as error:
        raise NotFound(
            f"public key {file} does not exist", hint="it was written beside the secret key: image.pub"
        ) from error


def _lines(comment: str, payload: bytes) -> str:
    return f"{_COMMENT}{comment}\n{base64.b64encode(payload).decode()}\n"


def _payload(text: str, size: int, what: str) -> bytes:
    lines = text.splitlines()
    if len(lines) != 2 or not lines[0].startswith(_COMMENT):
        raise Refused(
            f"the {what} is not in signify's format", hint="it has a line 'untrusted comment: …' and one of base64"
        )
    try:
        data = base64.b64decode(lines[1], validate=True)
    except binascii.Error as error:
        raise Refused(f"the {what} is not base64", hint="copy the file whole") from error
    if len(data) != size or data[:2] != _ALGORITHM:
        raise Refused(
            f"the {what} has {len(data)} bytes of {data[:2]!r}, not {size} of Ed25519", hint="copy the file whole"
        )
    return data
