"""Fetching, verifying and loading an image, against a real HTTP server and the real signify; only kexec is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.image.finished.sign import PublicKeys, SecretKey
from provisioner.node.image.manifest import MAX_KEYS, PUBLIC_KEY
from provisioner.node.image.stage import FOLDER, RECORD, close_folder, hash_key, read_record, stage
from provisioner.node.tpm.hand_over import hand_over_digest
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import write
from tests.node.staged import (
    DRIVER,
    IMAGE,
    KERNEL,
    KEY,
    LAYERS,
    MACHINE,
    OF_FORMAT_1,
    STAGE1,
    FakeKexec,
    in_store,
    initrd_of,
    key_in,
    refusal,
    starts,
)
from tests.signed_image import SignedImage, digest, layered_image

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("image", [IMAGE, OF_FORMAT_1], ids=["layers", "format 1"])
def test_an_image_is_verified_put_behind_its_stage_1_and_loaded(
    root: Path, store: FakeImageStore, image: SignedImage
) -> None:
    store.files = in_store(image)
    kexec = FakeKexec()
    said = stage(str(root), image.digest, ["panic=30"], kexec.load)
    assert image.name in said
    assert kexec.kernel == KERNEL
    assert kexec.initrd == initrd_of(image, key_in(kexec.initrd))
    assert kexec.command_line == (
        f"provisioner.server=r01-u01 provisioner.url={store.url} provisioner.image={image.name} console=ttyS0 panic=30"
    )
    assert kexec.lockdown == "none"
    folder = Path(f"{root}{FOLDER}")
    assert {file.name for file in folder.iterdir()} == {"image", "manifest", "manifest.sig", RECORD}, "memory is back"
    assert read_record(str(root)) == {
        "imageDigest": image.digest,
        "arguments": ("panic=30",),
        "requestKeySHA256": hash_key(key_in(kexec.initrd)),
        "handOverSHA256": hand_over_digest(
            kernel_sha256="sha256:" + digest(KERNEL),
            stage1_sha256="sha256:" + digest(STAGE1),
            image_digest=image.digest,
            request_key_sha256=hash_key(key_in(kexec.initrd)),
            command_line=kexec.command_line,
        ),
    }
    assert not any(key_in(kexec.initrd).encode() in file.read_bytes() for file in folder.iterdir())
    assert sorted(path for path, _ in store.asked) == sorted(store.files), "each once, and no document"
    close_folder(str(root))
    assert not folder.exists()


def test_each_time_that_an_image_is_staged_the_next_system_gets_another_request_key(
    root: Path, store: FakeImageStore
) -> None:
    store.files = in_store(IMAGE)
    keys = set()
    for _ in range(2):
        kexec = FakeKexec()
        stage(str(root), IMAGE.digest, [], kexec.load)
        keys.add(key_in(kexec.initrd))
        close_folder(str(root))
    assert len(keys) == 2


def test_an_image_that_is_not_the_intents_is_refused(root: Path, store: FakeImageStore) -> None:
    other = "sha256:" + "0b" * 32
    store.files = {path.replace(IMAGE.name, other.replace(":", "-")): body for path, body in in_store(IMAGE).items()}
    assert f"the manifest has digest {IMAGE.digest}, asked for was {other}" in refusal(root, other)


@pytest.mark.parametrize("number", [KEY.number, b"otherkey"])
def test_a_signature_by_another_key_is_refused(root: Path, store: FakeImageStore, number: bytes) -> None:
    forger = SecretKey(number, SecretKey.generate(lambda size: b"f" * size).seed)
    forged = layered_image(LAYERS, key=forger, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)
    store.files = in_store(forged)
    assert "not signed by a key of the running image" in refusal(root, forged.digest)
    assert not [path for path, _ in store.asked if "/parts/" in path], "nothing more was fetched"


OTHER_KEY = SecretKey.generate(lambda size: b"o" * size)
SIGNED_ANEW = layered_image(LAYERS, key=OTHER_KEY, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)


@pytest.mark.parametrize("image", [IMAGE, SIGNED_ANEW], ids=["the old key's", "the new key's"])
def test_while_keys_are_exchanged_images_of_both_are_staged(
    root: Path, store: FakeImageStore, image: SignedImage
) -> None:
    write(root, PUBLIC_KEY[1:], PublicKeys.of(KEY.public, OTHER_KEY.public).encode())
    store.files = in_store(image)
    kexec = FakeKexec()
    assert image.name in stage(str(root), image.digest, [], kexec.load)
    assert kexec.kernel == KERNEL


def test_a_key_that_was_revoked_signs_nothing_that_is_staged(root: Path, store: FakeImageStore) -> None:
    write(root, PUBLIC_KEY[1:], OTHER_KEY.public.encode())
    store.files = in_store(IMAGE)
    assert "not signed by a key of the running image" in refusal(root, IMAGE.digest)
    assert not [path for path, _ in store.asked if "/parts/" in path], "nothing more was fetched"


def test_of_many_keys_in_the_file_only_so_many_are_tried(root: Path, store: FakeImageStore) -> None:
    strangers = [SecretKey.generate(lambda size, n=number: bytes([n]) * size).public for number in range(MAX_KEYS)]  # type: ignore[misc]
    write(root, PUBLIC_KEY[1:], "".join(key.encode() for key in [*strangers, KEY.public]))
    store.files = in_store(IMAGE)
    assert "not signed by a key of the running image" in refusal(root, IMAGE.digest)


@pytest.mark.parametrize("content", ["", "\n", "untrusted comment: x\n", "no key\nat all\n" * 100])
def test_without_a_key_nothing_is_staged(root: Path, store: FakeImageStore, content: str) -> None:
    write(root, PUBLIC_KEY[1:], content)
    store.files = in_store(IMAGE)
    assert "not signed by a key of the running image" in refusal(root, IMAGE.digest)


@pytest.mark.parametrize("name", ["kernel", "stage1", "layer base", "layer driver", "layer site"])
def test_an_altered_file_is_refused(root: Path, store: FakeImageStore, name: str) -> None:
    store.files = in_store(IMAGE)
    content = {"kernel": KERNEL, "stage1": STAGE1}.get(name) or LAYERS[name.removeprefix("layer ")]
    path = next(path for path, body in store.files.items() if body == content)
    store.files[path] = content[:3000] + bytes([content[3000] ^ 1]) + content[3001:]
    assert f"{name} is altered" in refusal(root, IMAGE.digest)


def test_a_file_that_is_longer_than_the_manifest_says_is_refused(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE) | {f"/images/{IMAGE.path('driver')}": DRIVER + b"more"}
    assert f"layer driver has more than {len(DRIVER)} bytes" in refusal(root, IMAGE.digest)


def test_an_image_for_another_processor_is_refused(root: Path, store: FakeImageStore) -> None:
    foreign = layered_image(LAYERS, key=KEY, architecture="riscv64")
    store.files = in_store(foreign)
    assert "the image is for 'riscv64'" in refusal(root, foreign.digest)


def test_a_machine_with_little_memory_does_not_begin(root: Path, store: FakeImageStore) -> None:
    write(root, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 66000 kB\n")
    store.files = in_store(IMAGE)
    assert "memory: 64 MiB available, and 67 MiB needed" in refusal(root, IMAGE.digest)
    assert not [path for path, _ in store.asked if "/parts/" in path]


def test_memory_that_becomes_short_while_fetching_ends_it(
    root: Path, store: FakeImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.files = in_store(IMAGE)
    monkeypatch.setattr("provisioner.node.image.fetch.CHECK_BYTES", 1 << 16)

    def a_job_starts(path: str, body: bytes) -> bytes:
        if path.endswith(IMAGE.path("driver")):
            write(root, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 50000 kB\n")
        return body

    store.fault = a_job_starts
    assert "memory: 48 MiB available" in refusal(root, IMAGE.digest)
    assert starts(store, "kubelet") == []


def test_a_store_that_has_no_such_image_is_named(root: Path, store: FakeImageStore) -> None:
    assert f"{store.url}/images/sha256-" in refusal(root, "sha256:" + "0b" * 32)


def test_a_record_that_is_damaged_counts_as_none(root: Path) -> None:
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    for content in ("", "[]", json.dumps({"imageDigest": "x"})):
        (folder / RECORD).write_text(content)
        assert read_record(str(root)) is None
