from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.image.finished.sign import (
    PublicKey,
    PublicKeys,
    SecretKey,
    read_public_key,
    read_secret_key,
    write_keys,
)
from tests.tools import signify

MESSAGE = b"provisioner-image 1\n"


def fixed_key(byte: int = 7) -> SecretKey:
    return SecretKey.generate(lambda size: bytes([byte]) * size)


def test_a_signature_is_accepted_for_its_message_and_key_alone() -> None:
    key, other = fixed_key(), SecretKey(fixed_key().number, fixed_key(9).seed)
    signature = key.sign(MESSAGE)
    key.public.verify(MESSAGE, signature)
    with pytest.raises(Refused, match="either was altered"):
        key.public.verify(MESSAGE + b" ", signature)
    with pytest.raises(Refused, match="either was altered"):
        other.public.verify(MESSAGE, signature)
    with pytest.raises(Refused, match="signed with key 0707070707070707, not with 0909090909090909"):
        fixed_key(9).public.verify(MESSAGE, signature)


@pytest.mark.parametrize(
    "text", ["", "untrusted comment: x\n", "x\ny\n", "untrusted comment: x\n!!!\n", "untrusted comment: x\nRWQ=\n"]
)
def test_what_is_no_signature_or_key_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        fixed_key().public.verify(MESSAGE, text)
    with pytest.raises(Refused):
        PublicKey.decode(text)
    with pytest.raises(Refused):
        SecretKey.decode(Secret(text))


def test_keys_are_written_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    secret, public = write_keys(tmp_path / "keys", fixed_key())
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert read_secret_key(secret).sign(MESSAGE) == fixed_key().sign(MESSAGE)
    assert read_public_key(public) == fixed_key().public
    with pytest.raises(Refused, match="exists"):
        write_keys(tmp_path / "keys", fixed_key(9))


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    secret, _ = write_keys(tmp_path, fixed_key())
    secret.chmod(0o640)
    with pytest.raises(NeedsHuman, match="chmod 600"):
        read_secret_key(secret)
    with pytest.raises(NotFound, match="keygen"):
        read_secret_key(tmp_path / "none")


def test_a_damaged_secret_key_is_refused(tmp_path: Path) -> None:
    text = fixed_key().encode().reveal()
    damaged = text[:-6] + ("A" if text[-6] != "A" else "B") + text[-5:]
    with pytest.raises(Refused, match="checksum"):
        SecretKey.decode(Secret(damaged))


def test_a_key_does_not_show_itself() -> None:
    assert fixed_key().seed.reveal() not in repr(fixed_key())


@pytest.mark.programs
def test_signify_accepts_our_signatures_and_we_accept_its(tmp_path: Path) -> None:
    program = signify()
    key = SecretKey.generate()
    secret, public = write_keys(tmp_path, key)
    message, ours, theirs = tmp_path / "message", tmp_path / "ours.sig", tmp_path / "theirs.sig"
    message.write_bytes(MESSAGE)
    ours.write_text(key.sign(MESSAGE))
    subprocess.run([*program, "-V", "-q", "-p", public, "-m", message, "-x", ours], check=True)
    subprocess.run([*program, "-S", "-s", secret, "-m", message, "-x", theirs], check=True)
    key.public.verify(MESSAGE, theirs.read_text())
    message.write_bytes(MESSAGE + b"x")
    done = subprocess.run([*program, "-V", "-q", "-p", public, "-m", message, "-x", ours], capture_output=True)
    assert done.returncode != 0


def other_key() -> SecretKey:
    return SecretKey.generate(lambda size: b"o" * size)


def test_while_keys_are_exchanged_signatures_of_both_are_believed() -> None:
    both = PublicKeys.decode(fixed_key().public.encode() + other_key().public.encode())
    for key in (fixed_key(), other_key()):
        both.verify(b"manifest", key.sign(b"manifest"))
        with pytest.raises(Refused, match="not one of this manifest"):
            both.verify(b"another manifest", key.sign(b"manifest"))


def test_a_revoked_key_is_refused_by_its_number_and_a_forger_who_takes_the_new_number_too() -> None:
    new_alone = PublicKeys.decode(other_key().public.encode())
    with pytest.raises(Refused, match=f"signed with key {fixed_key().number.hex()}, not with"):
        new_alone.verify(b"manifest", fixed_key().sign(b"manifest"))
    forger = SecretKey(other_key().number, fixed_key().seed)
    with pytest.raises(Refused, match="not one of this manifest"):
        new_alone.verify(b"manifest", forger.sign(b"manifest"))


def test_a_file_of_keys_that_is_none_is_refused() -> None:
    line = fixed_key().public.encode()
    twin = SecretKey(fixed_key().number, other_key().seed).public.encode()
    for text, words in (
        ("", "not in signify's format"),
        (line + "x\n", "not in signify's format"),
        (line + twin, "one number"),
    ):
        with pytest.raises(Refused, match=words):
            PublicKeys.decode(text)
    many = "".join(SecretKey.generate().public.encode() for _ in range(5))
    with pytest.raises(Refused, match="5 public keys, more than 4"):
        PublicKeys.decode(many)


def test_the_same_key_twice_is_one() -> None:
    assert PublicKeys.decode(fixed_key().public.encode() * 2).keys == (fixed_key().public,)
