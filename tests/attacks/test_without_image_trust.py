"""Each rule about signed images, taken away by itself, lets the attack through that it is for.

The attacks are in tests/image/trust and tests/image/test_sign*.py. What stage-1 and firmware refuse is shown there:
what they would do without their checks needs another stage-1, and another firmware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import MANIFEST, FileDigest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.finished.sign_elsewhere import sign_manifest
from provisioner.image.trust.judge import _judge, signed_text
from tests.image.test_sign_elsewhere import unsigned
from tests.image.trust.test_judge import ALTERED, KEY, OTHER, TRUST, published, verdict

JUDGE: Final = "provisioner.image.trust.judge."
SIGN: Final = "provisioner.image.finished.sign."


class AnyDigest(str):
    """Differs from none."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


class AnythingIsSigned:
    """In the place of Ed25519PublicKey."""

    @classmethod
    def from_public_bytes(cls, key: bytes) -> AnythingIsSigned:
        return cls()

    def verify(self, signature: bytes, message: bytes) -> None:
        """It always holds."""


def of_another_key(folder: Path) -> str:
    return verdict(published(folder, OTHER))[1]


def with_a_forged_number(folder: Path) -> str:
    """Signed by another key that says the number of the right one."""
    return verdict(published(folder, SecretKey(KEY.number, OTHER.seed)))[1]


def altered(folder: Path) -> str:
    image = published(folder)
    return verdict(replace(image, spec=ALTERED["a kernel argument more"](image.spec)))[1]


def revoked(folder: Path) -> str:
    image = published(folder)
    return verdict(image, replace(TRUST, revoked={image.spec.digest: "CVE-2026-1"}))[1]


def exchanged_manifest(folder: Path) -> str:
    """Between the build and the key somebody has exchanged it."""
    text = (unsigned(folder / "built") / MANIFEST).read_bytes()
    theirs = folder / "exchanged"
    theirs.write_bytes(text.replace(b"kernel-arguments quiet", b"kernel-arguments quiet init=/bin/sh"))
    try:
        sign_manifest(theirs, KEY, digest_of(text))
    except Refused as error:
        return "Exchanged" if "not of sha256:" in str(error) else str(error)
    return "Signed"


def altered_in_the_store(folder: Path) -> str:
    """A layer that is not what was signed, published by who has the store."""
    store = published_folder(folder)
    part = next(path for path in sorted((store.parent / "parts").iterdir()) if path.stat().st_size > 1)
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.chmod(0o644)
    part.write_bytes(bytes(content))
    try:
        check_image(store, KEY.public)
    except Refused as error:
        return "Altered" if "is altered" in str(error) else str(error)
    return "Signed"


def published_folder(folder: Path) -> Path:
    published(folder)
    return next(path for path in (folder / "store").iterdir() if path.name.startswith("sha256-"))


@dataclass(frozen=True)
class Attack:
    """act: what came of it, in a folder of its own; Signed where it is believed. absent: as its name."""

    reason: str
    act: Callable[[Path], str]
    absent: Mapping[str, object]


ATTACKS = {
    "an image that another key has signed": Attack(
        "SignatureInvalid", of_another_key, {f"{SIGN}PublicKeys.verify": lambda *_: None}
    ),
    "a forged signature": Attack(
        "SignatureInvalid", with_a_forged_number, {f"{SIGN}Ed25519PublicKey": AnythingIsSigned}
    ),
    "an object that says another thing than was signed": Attack(
        "Altered",
        altered,
        {
            f"{JUDGE}signed_text": lambda spec: signed_text(
                replace(spec, kernel_arguments=tuple(each for each in spec.kernel_arguments if "/bin/sh" not in each))
            )
        },
    ),
    "an image that was revoked": Attack(
        "Revoked", revoked, {f"{JUDGE}_judge": lambda image, trust: _judge(image, replace(trust, revoked={}))}
    ),
    "another manifest for the key to sign": Attack(
        "Exchanged",
        exchanged_manifest,
        {"provisioner.image.finished.sign_elsewhere.digest_of": lambda _: AnyDigest("sha256:")},
    ),
    "a layer that was altered in the store": Attack(
        "Altered",
        altered_in_the_store,
        {"provisioner.image.finished.store.measure": lambda file: FileDigest(AnyDigest(""), file.stat().st_size)},
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_image_is_refused_by_that_rule(attack: Attack, tmp_path: Path) -> None:
    assert attack.act(tmp_path) == attack.reason


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_image_is_believed_without_that_rule(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, instead in attack.absent.items():
        monkeypatch.setattr(name, instead)
    assert attack.act(tmp_path) == "Signed"
