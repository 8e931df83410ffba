"""Staging an image of which some layers run already: those are copied, and only the others are fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.node.image.stage import stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.staged import (
    BASE,
    DRIVER,
    IMAGE,
    KERNEL,
    KEY,
    KUBELET,
    LAYERS,
    MACHINE,
    OF_FORMAT_1,
    SITE,
    STAGE1,
    FakeKexec,
    in_store,
    initrd_of,
    key_in,
    let_run,
    refusal,
    starts,
)
from tests.signed_image import layered_image

pytestmark = pytest.mark.programs


def test_only_a_new_driver_is_fetched_when_all_else_runs_already(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    let_run(root, {"base": BASE, "driver": b"the driver before", "kubelet": KUBELET, "site": SITE})
    kexec = FakeKexec()
    said = stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert {layer: starts(store, layer) for layer in LAYERS} == {"base": [], "driver": [""], "kubelet": [], "site": []}
    assert "3 of 4 layers were here, 1 MB fetched" in said


def test_a_running_root_of_format_1_serves_a_staging_of_the_same_root(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(OF_FORMAT_1)
    let_run(root, {"root": BASE})
    kexec = FakeKexec()
    said = stage(str(root), OF_FORMAT_1.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(OF_FORMAT_1, key_in(kexec.initrd))
    assert "1 of 1 layers were here, 0 MB fetched" in said


def test_a_device_that_does_not_hold_its_layer_is_told_of_and_the_layer_fetched(
    root: Path, store: FakeImageStore
) -> None:
    store.files = in_store(IMAGE)
    let_run(root, LAYERS)
    (root / "dev/loop1").write_bytes(DRIVER[:-1] + bytes([DRIVER[-1] ^ 1]))
    kexec = FakeKexec()
    said = stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert starts(store, "driver") == [""]
    assert "3 of 4 layers were here, 1 MB fetched; " in said
    assert "/dev/loop1: layer driver is altered" in said


def test_an_image_all_of_which_runs_already_still_needs_its_signature(root: Path, store: FakeImageStore) -> None:
    forger = SecretKey(KEY.number, SecretKey.generate(lambda size: b"f" * size).seed)
    forged = layered_image(LAYERS, key=forger, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)
    store.files = in_store(forged)
    let_run(root, LAYERS)
    assert "not signed by a key of the running image" in refusal(root, forged.digest)
