"""Fetching, verifying and loading an image, against a real HTTP server and the real signify; only kexec is recorded."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.node.image import manifest
from provisioner.node.image.initrd import after_root, before_root
from provisioner.node.image.manifest import ImageError
from provisioner.node.image.stage import FOLDER, RECORD, close_folder, hash_key, read_record, stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import make_machine, write
from tests.tools import lab_tools

KEY = SecretKey.generate(lambda size: b"k" * size)
KERNEL, STAGE1, ROOT = b"kernel" * 1000, b"stage1" * 1001, os.urandom(700_000)
MACHINE = {"x86_64": "x86_64", "aarch64": "arm64"}[os.uname().machine]


def manifest_of(root: bytes = ROOT, *, architecture: str = MACHINE) -> bytes:
    lines = ["provisioner-image 1", "recipe gpu-node", "distribution debian-13", f"architecture {architecture}"]
    for name, content in (("kernel", KERNEL), ("stage1", STAGE1), ("root", root)):
        lines.append(f"{name} {hashlib.sha256(content).hexdigest()} {len(content)}")
    return ("\n".join([*lines, "version.kernel 6.12"]) + "\n").encode()


def publish(manifest: bytes, *, key: SecretKey = KEY) -> tuple[str, dict[str, bytes]]:
    """The image's digest, and its files by path."""
    digest = hashlib.sha256(manifest).hexdigest()
    files = {"manifest": manifest, "manifest.sig": key.sign(manifest).encode()}
    files |= {"vmlinuz": KERNEL, "stage1.img": STAGE1, "root.squashfs": ROOT}
    return f"sha256:{digest}", {f"/images/sha256-{digest}/{name}": body for name, body in files.items()}


class FakeKexec:
    """Records what would have been loaded."""

    def __init__(self) -> None:
        self.kernel, self.initrd, self.command_line, self.lockdown = b"", b"", "", ""

    def load(self, kernel: str, initrd: str, command_line: str, lockdown: str) -> None:
        self.kernel, self.initrd = Path(kernel).read_bytes(), Path(initrd).read_bytes()
        self.command_line, self.lockdown = command_line, lockdown


def key_in(initrd: bytes) -> str:
    """The request key that the archive behind the root has."""
    (found,) = re.findall(rb"staged/request-key\0+([0-9a-f]{64})\n", initrd)
    return str(found.decode())


@pytest.fixture(autouse=True)
def _signify_of_the_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The image has the program itself; here it may be the one of the lab's chroot."""
    program = shutil.which("signify-openbsd")
    if program is None:
        wrapper = tmp_path / "signify"
        command = shlex.join(lab_tools().command(["signify-openbsd"], binds=[tmp_path]))
        wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        wrapper.chmod(0o755)
        program = str(wrapper)
    monkeypatch.setattr(manifest, "SIGNIFY", program)


@pytest.fixture
def store() -> Iterator[FakeImageStore]:
    with FakeImageStore({}) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path, store: FakeImageStore) -> Path:
    machine = make_machine(tmp_path / "machine")
    write(
        machine,
        "proc/cmdline",
        f"initrd=stage1.img provisioner.server=r01-u01 provisioner.url={store.url} "
        f"provisioner.image=sha256-{'0a' * 32} console=ttyS0 quiet\n",
    )
    write(machine, "etc/provisioner/image.pub", KEY.public.encode())
    (machine / "run/provisioner").mkdir(parents=True)
    return machine


def test_an_image_is_verified_put_behind_its_stage_1_and_loaded(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    kexec = FakeKexec()
    said = stage(str(root), digest, ["panic=30"], kexec.load)
    assert digest.replace(":", "-") in said
    assert kexec.kernel == KERNEL
    signature = KEY.sign(manifest_of()).encode()
    between = before_root(len(STAGE1), manifest_of(), signature, len(ROOT))
    assert kexec.initrd == STAGE1 + between + ROOT + after_root(len(ROOT), key_in(kexec.initrd))
    assert kexec.command_line == (
        f"provisioner.server=r01-u01 provisioner.url={store.url} provisioner.image={digest.replace(':', '-')} "
        "console=ttyS0 panic=30"
    )
    assert kexec.lockdown == "none"
    folder = Path(f"{root}{FOLDER}")
    assert {file.name for file in folder.iterdir()} == {"image", "manifest", "manifest.sig", RECORD}, "memory is back"
    assert read_record(str(root)) == {
        "imageDigest": digest,
        "arguments": ("panic=30",),
        "requestKeySHA256": hash_key(key_in(kexec.initrd)),
    }
    assert not any(key_in(kexec.initrd).encode() in file.read_bytes() for file in folder.iterdir())
    close_folder(str(root))
    assert not folder.exists()


def test_each_time_that_an_image_is_staged_the_next_system_gets_another_request_key(
    root: Path, store: FakeImageStore
) -> None:
    digest, store.files = publish(manifest_of())
    keys = set()
    for _ in range(2):
        kexec = FakeKexec()
        stage(str(root), digest, [], kexec.load)
        keys.add(key_in(kexec.initrd))
        close_folder(str(root))
    assert len(keys) == 2


def test_a_fetch_that_was_cut_goes_on_where_it_ended(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    cuts = [300_000, 100_000]

    def cut(path: str, body: bytes) -> bytes:
        return body[: cuts.pop()] if path.endswith("root.squashfs") and cuts else body

    store.fault = cut
    kexec = FakeKexec()
    stage(str(root), digest, [], kexec.load)
    assert ROOT in kexec.initrd
    ranges = [asked for path, asked in store.asked if path.endswith("root.squashfs")]
    assert ranges == ["", "bytes=100000-", "bytes=400000-"]


def test_a_new_process_goes_on_with_what_the_one_before_has_fetched(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    (folder / "image").write_text(digest)
    between = before_root(len(STAGE1), manifest_of(), KEY.sign(manifest_of()).encode(), len(ROOT))
    (folder / "initrd").write_bytes(STAGE1 + between + ROOT[:500_000])
    kexec = FakeKexec()
    stage(str(root), digest, [], kexec.load)
    assert kexec.initrd == STAGE1 + between + ROOT + after_root(len(ROOT), key_in(kexec.initrd))
    assert [asked for path, asked in store.asked if path.endswith("root.squashfs")] == ["bytes=500000-"]


def test_a_source_without_ranges_serves_too(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    store.ranges = False
    cuts = [200_000]
    store.fault = lambda path, body: body[: cuts.pop()] if path.endswith("root.squashfs") and cuts else body
    kexec = FakeKexec()
    stage(str(root), digest, [], kexec.load)
    assert ROOT in kexec.initrd


def test_what_another_image_left_is_not_used(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    (folder / "image").write_text("sha256:" + "77" * 32)
    (folder / "initrd").write_bytes(b"x" * 1_000_000)
    kexec = FakeKexec()
    stage(str(root), digest, [], kexec.load)
    assert kexec.initrd.startswith(STAGE1)


def refusal(root: Path, digest: str) -> str:
    """Why nothing was loaded."""
    kexec = FakeKexec()
    with pytest.raises(ImageError) as caught:
        stage(str(root), digest, [], kexec.load)
    assert kexec.kernel == b"", "nothing was loaded"
    assert read_record(str(root)) is None
    return str(caught.value)


def test_an_image_that_is_not_the_intents_is_refused(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    other = "sha256:" + "0b" * 32
    store.files = {
        path.replace(digest.replace(":", "-"), other.replace(":", "-")): f for path, f in store.files.items()
    }
    assert f"the manifest has digest {digest}, asked for was {other}" in refusal(root, other)


@pytest.mark.parametrize("number", [KEY.number, b"otherkey"])
def test_a_signature_by_another_key_is_refused(root: Path, store: FakeImageStore, number: bytes) -> None:
    forger = SecretKey(number, SecretKey.generate(lambda size: b"f" * size).seed)
    digest, store.files = publish(manifest_of(), key=forger)
    assert "not signed by the key of the running image" in refusal(root, digest)
    assert not [path for path, _ in store.asked if path.endswith("root.squashfs")], "nothing more was fetched"


@pytest.mark.parametrize("name", ["vmlinuz", "stage1.img", "root.squashfs"])
def test_an_altered_file_is_refused(root: Path, store: FakeImageStore, name: str) -> None:
    digest, store.files = publish(manifest_of())
    path = f"/images/{digest.replace(':', '-')}/{name}"
    body = store.files[path]
    store.files[path] = body[:3000] + bytes([body[3000] ^ 1]) + body[3001:]
    assert f"{name} is altered" in refusal(root, digest)


def test_a_file_that_is_longer_than_the_manifest_says_is_refused(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of())
    store.files[f"/images/{digest.replace(':', '-')}/root.squashfs"] = ROOT + b"more"
    assert f"more than {len(ROOT)} bytes" in refusal(root, digest)


def test_an_image_for_another_processor_is_refused(root: Path, store: FakeImageStore) -> None:
    digest, store.files = publish(manifest_of(architecture="riscv64"))
    assert "the image is for 'riscv64'" in refusal(root, digest)


def test_a_machine_with_little_memory_does_not_begin(root: Path, store: FakeImageStore) -> None:
    write(root, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 66000 kB\n")
    digest, store.files = publish(manifest_of())
    assert "memory: 64 MiB available, and 66 MiB needed" in refusal(root, digest)
    assert not [path for path, _ in store.asked if path.endswith("root.squashfs")]


def test_memory_that_becomes_short_while_fetching_ends_it(
    root: Path, store: FakeImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, store.files = publish(manifest_of())
    monkeypatch.setattr("provisioner.node.image.fetch.CHECK_BYTES", 1 << 16)

    def a_job_starts(path: str, body: bytes) -> bytes:
        if path.endswith("root.squashfs"):
            write(root, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 50000 kB\n")
        return body

    store.fault = a_job_starts
    assert "memory: 48 MiB available" in refusal(root, digest)


def test_a_store_that_has_no_such_image_is_named(root: Path, store: FakeImageStore) -> None:
    assert f"{store.url}/images/sha256-" in refusal(root, "sha256:" + "0b" * 32)


def test_a_record_that_is_damaged_counts_as_none(root: Path) -> None:
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    for content in ("", "[]", json.dumps({"imageDigest": "x"})):
        (folder / RECORD).write_text(content)
        assert read_record(str(root)) is None
