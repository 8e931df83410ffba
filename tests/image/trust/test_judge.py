"""Which Images the cluster believes: each way in which one can be another's, and the honest one beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.images.image import Artifact, Image, ImageSpec, NamedArtifact
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import Condition, rfc3339
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import Format
from provisioner.image.finished.publish import image_object
from provisioner.image.finished.sign import PublicKeys, SecretKey
from provisioner.image.trust.document import Trust
from provisioner.image.trust.judge import judge, signed_text
from tests.image.made_images import WRITERS

KEY, OTHER = (SecretKey.generate(lambda size, filler=filler: filler * size) for filler in (b"k", b"o"))
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TRUST = Trust(PublicKeys.of(KEY.public))


def published(folder: Path, key: SecretKey = KEY, format_: Format = 2) -> Image:
    """The object that publishing makes of a made image."""
    return image_object(check_image(WRITERS[format_](folder / "store", key), key.public))


def verdict(image: Image, trust: Trust | Refused = TRUST) -> tuple[str, str]:
    """Status and reason."""
    said = judge(image, trust, NOON)
    assert said is not None
    return said.status, said.reason


@pytest.mark.parametrize("format_", [1, 2])
def test_what_was_published_is_believed_and_the_signed_text_is_in_the_object(tmp_path: Path, format_: Format) -> None:
    image = published(tmp_path, format_=format_)
    assert verdict(image) == ("True", "Signed")
    assert signed_text(image.spec) == (tmp_path / "store" / image.spec.manifest.path).read_bytes()


def test_an_image_of_another_key_is_not_believed_and_one_of_either_is_while_keys_are_exchanged(tmp_path: Path) -> None:
    image = published(tmp_path, OTHER)
    assert verdict(image) == ("False", "SignatureInvalid")
    assert verdict(image, Trust(PublicKeys.of(KEY.public, OTHER.public))) == ("True", "Signed")


ALTERED: dict[str, Callable[[ImageSpec], ImageSpec]] = {
    "a kernel argument more": lambda spec: replace(spec, kernel_arguments=(*spec.kernel_arguments, "init=/bin/sh")),
    "another kernel": lambda spec: replace(spec, kernel=replace(spec.kernel, sha256="sha256:" + "00" * 32)),
    "another place of the kernel": lambda spec: replace(spec, kernel=replace(spec.kernel, path="parts/sha256-ff")),
    "another place of the manifest": lambda spec: replace(spec, manifest=replace(spec.manifest, path="x/manifest")),
    "another size": lambda spec: replace(spec, stage1=replace(spec.stage1, size_bytes=1)),
    "a layer less": lambda spec: replace(spec, layers=spec.layers[1:]),
    "layers in another order": lambda spec: replace(spec, layers=spec.layers[::-1]),
    "a document more": lambda spec: replace(
        spec,
        documents=(*spec.documents, NamedArtifact(name="x", path="parts/x", sha256="sha256:" + "0" * 64, size_bytes=1)),
    ),
    "another version": lambda spec: replace(spec, versions={**spec.versions, "kernel": "6.13"}),
    "another recipe": lambda spec: replace(spec, recipe="cpu-node"),
    "the digest of another": lambda spec: replace(spec, digest="sha256:" + "11" * 32),
    "a root beside its name": lambda spec: replace(
        spec, layers=(), root=Artifact(path="r", sha256=spec.kernel.sha256, size_bytes=spec.kernel.size_bytes)
    ),
    "two lines in one": lambda spec: replace(spec, kernel_arguments=("quiet\nversion.kernel 1",)),
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_object_that_says_another_thing_than_was_signed_is_not_believed(tmp_path: Path, what: str) -> None:
    image = published(tmp_path)
    assert verdict(replace(image, spec=ALTERED[what](image.spec))) == ("False", "Altered")


def test_what_was_not_signed_is_refused_with_the_digest_of_what_it_says(tmp_path: Path) -> None:
    image = published(tmp_path)
    said = judge(replace(image, spec=ALTERED["another kernel"](image.spec)), TRUST, NOON)
    assert said is not None
    assert f"something else than a manifest with {image.spec.digest}: what it says has sha256:" in said.message


def test_a_signed_image_under_the_name_of_another_digest_is_not_believed(tmp_path: Path) -> None:
    """Who is assigned the Image of that name would boot this one."""
    image = published(tmp_path)
    other = f"{image.spec.recipe}-{'0' * 12}"
    assert verdict(replace(image, metadata=replace(image.metadata, name=other))) == ("False", "Altered")
    assert verdict(replace(image, metadata=replace(image.metadata, name="the-old-one"))) == ("True", "Signed")


@pytest.mark.parametrize("signature", ["", "c2ln", "untrusted comment: x\nRWQ=\n"])
def test_an_image_without_a_signature_is_not_believed(tmp_path: Path, signature: str) -> None:
    image = published(tmp_path)
    assert verdict(replace(image, spec=replace(image.spec, signature=signature))) == ("False", "SignatureInvalid")


def test_a_signature_of_another_image_is_not_believed(tmp_path: Path) -> None:
    image, other = published(tmp_path / "a"), published(tmp_path / "b", format_=1)
    taken = replace(image, spec=replace(image.spec, signature=other.spec.signature))
    assert verdict(taken) == ("False", "SignatureInvalid")


def test_an_old_signed_image_is_believed_until_it_is_revoked(tmp_path: Path) -> None:
    old = published(tmp_path)
    assert verdict(old) == ("True", "Signed"), "an administrator may go back to it"
    revoked = replace(TRUST, revoked={old.spec.digest: "CVE-2026-1"})
    said = judge(old, revoked, NOON)
    assert said is not None
    assert (said.status, said.reason) == ("False", "Revoked")
    assert "CVE-2026-1" in said.message
    assert verdict(published(tmp_path / "next", format_=1), revoked) == ("True", "Signed")


def test_a_site_that_names_no_keys_is_told_so_and_revokes_all_the_same(tmp_path: Path) -> None:
    image = published(tmp_path)
    assert verdict(image, Trust()) == ("Unknown", "NoTrustedKeys")
    assert verdict(image, Trust(revoked={image.spec.digest: "stolen"})) == ("False", "Revoked")


def with_condition(image: Image, said: Condition | None) -> Image:
    assert said is not None
    return replace(image, status=replace(image.status, conditions=(said,)))


def test_a_typo_lets_nothing_new_in_and_stops_nothing_that_was_believed(tmp_path: Path) -> None:
    broken = Refused("line 1 is not a digest", hint="correct it")
    image = published(tmp_path)
    assert verdict(image, broken) == ("False", "TrustUnreadable")
    assert judge(with_condition(image, judge(image, TRUST, NOON)), broken, NOON) is None


def test_what_is_written_already_is_not_written_again_and_a_change_keeps_its_time(tmp_path: Path) -> None:
    image = published(tmp_path)
    known = with_condition(image, judge(image, TRUST, NOON))
    later: Any = NOON + timedelta(hours=1)
    assert judge(known, TRUST, later) is None
    changed = judge(known, Trust(PublicKeys.of(OTHER.public)), later)
    assert changed is not None
    assert changed.last_transition_time == rfc3339(later)
