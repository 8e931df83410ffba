"""Fetching, verifying and loading an image, against a real HTTP server and the real signify; only kexec is recorded."""

from __future__ import annotations

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
from provisioner.node.image.initrd import after_layer, after_layers, before_layer, before_layers
from provisioner.node.image.manifest import ImageError
from provisioner.node.image.stage import FOLDER, RECORD, close_folder, hash_key, read_record, stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import make_machine, write
from tests.signed_image import SignedImage, digest, layered_image, one_root_image
from tests.tools import lab_tools

KEY = SecretKey.generate(lambda size: b"k" * size)
KERNEL, STAGE1 = b"kernel" * 1000, b"stage1" * 1001
BASE, DRIVER, KUBELET, SITE = os.urandom(700_000), os.urandom(600_001), os.urandom(50_002), os.urandom(4096)
LAYERS = {"base": BASE, "driver": DRIVER, "kubelet": KUBELET, "site": SITE}
MACHINE = {"x86_64": "x86_64", "aarch64": "arm64"}[os.uname().machine]
IMAGE = layered_image(LAYERS, key=KEY, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)
OF_FORMAT_1 = one_root_image(BASE, key=KEY, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)


def in_store(image: SignedImage) -> dict[str, bytes]:
    """What the boot host has of it, by path."""
    return {f"/images/{path}": content for path, content in image.served().items()}


def initrd_of(image: SignedImage, key: str) -> bytes:
    """stage-1, and behind it all that is staged."""
    initrd = STAGE1 + before_layers(len(STAGE1), image.manifest, image.signature)
    for name, content in image.layers.items():
        initrd += before_layer(image.file(name), len(content)) + content + after_layer(len(content))
    return initrd + after_layers(key)


class FakeKexec:
    """Records what would have been loaded."""

    def __init__(self) -> None:
        self.kernel, self.initrd, self.command_line, self.lockdown = b"", b"", "", ""

    def load(self, kernel: str, initrd: str, command_line: str, lockdown: str) -> None:
        self.kernel, self.initrd = Path(kernel).read_bytes(), Path(initrd).read_bytes()
        self.command_line, self.lockdown = command_line, lockdown


def key_in(initrd: bytes) -> str:
    """The request key that the archive behind the layers has."""
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


def starts(store: FakeImageStore, layer: str) -> list[str]:
    """Of the requests for a layer, in order."""
    return [asked for path, asked in store.asked if path.endswith(IMAGE.path(layer))]


def test_a_fetch_that_was_cut_goes_on_where_it_ended(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    cuts = [300_000, 100_000]

    def cut(path: str, body: bytes) -> bytes:
        return body[: cuts.pop()] if path.endswith(IMAGE.path("driver")) and cuts else body

    store.fault = cut
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert starts(store, "driver") == ["", "bytes=100000-", "bytes=400000-"]
    assert starts(store, "base") == starts(store, "site") == [""]


LEFT = initrd_of(IMAGE, "")
IN_DRIVER = LEFT.index(DRIVER[:99])
ENDED = {
    "nowhere": (0, {"base": [""], "driver": [""], "site": [""]}),
    "in stage-1": (3000, {"base": [""], "driver": [""], "site": [""]}),
    "in the manifest": (len(STAGE1) + 200, {"base": [""], "driver": [""], "site": [""]}),
    "in the first layer": (LEFT.index(BASE[:99]) + 500_000, {"base": ["bytes=500000-"], "driver": [""], "site": [""]}),
    "before the second layer": (IN_DRIVER - 10, {"base": [], "driver": [""], "site": [""]}),
    "in the second layer": (IN_DRIVER + 400_000, {"base": [], "driver": ["bytes=400000-"], "site": [""]}),
    "behind all layers": (len(LEFT) - 4, {"base": [], "driver": [], "site": []}),
}
"""Where an earlier process ended, and what is asked for after that."""


def leave(root: Path, initrd: bytes, image_digest: str = IMAGE.digest) -> None:
    """What an earlier process has left."""
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    (folder / "image").write_text(image_digest)
    (folder / "initrd").write_bytes(initrd)


@pytest.mark.parametrize("where", ENDED)
def test_a_new_process_goes_on_with_what_the_one_before_has_fetched(
    root: Path, store: FakeImageStore, where: str
) -> None:
    store.files = in_store(IMAGE)
    at, asked = ENDED[where]
    leave(root, LEFT[:at])
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert {layer: starts(store, layer) for layer in asked} == asked


@pytest.mark.parametrize("at", [100, LEFT.index(BASE) + 5, IN_DRIVER + 5])
def test_what_an_earlier_process_left_is_not_believed(root: Path, store: FakeImageStore, at: int) -> None:
    store.files = in_store(IMAGE)
    leave(root, LEFT[:at] + bytes([LEFT[at] ^ 1]) + LEFT[at + 1 :] + b"more")
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_what_stands_behind_the_end_of_the_archive_goes(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    leave(root, LEFT + b"more" * 99)
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_a_source_without_ranges_serves_too(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    store.ranges = False
    cuts = [200_000]
    store.fault = lambda path, body: body[: cuts.pop()] if path.endswith(IMAGE.path("driver")) and cuts else body
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_what_another_image_left_is_not_used(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    leave(root, b"x" * 1_000_000, image_digest="sha256:" + "77" * 32)
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def refusal(root: Path, digest: str) -> str:
    """Why nothing was loaded."""
    kexec = FakeKexec()
    with pytest.raises(ImageError) as caught:
        stage(str(root), digest, [], kexec.load)
    assert kexec.kernel == b"", "nothing was loaded"
    assert read_record(str(root)) is None
    return str(caught.value)


def test_an_image_that_is_not_the_intents_is_refused(root: Path, store: FakeImageStore) -> None:
    other = "sha256:" + "0b" * 32
    store.files = {path.replace(IMAGE.name, other.replace(":", "-")): body for path, body in in_store(IMAGE).items()}
    assert f"the manifest has digest {IMAGE.digest}, asked for was {other}" in refusal(root, other)


@pytest.mark.parametrize("number", [KEY.number, b"otherkey"])
def test_a_signature_by_another_key_is_refused(root: Path, store: FakeImageStore, number: bytes) -> None:
    forger = SecretKey(number, SecretKey.generate(lambda size: b"f" * size).seed)
    forged = layered_image(LAYERS, key=forger, kernel=KERNEL, stage1=STAGE1, architecture=MACHINE)
    store.files = in_store(forged)
    assert "not signed by the key of the running image" in refusal(root, forged.digest)
    assert not [path for path, _ in store.asked if "/parts/" in path], "nothing more was fetched"


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


def let_run(root: Path, layers: dict[str, bytes]) -> None:
    """As stage-1 leaves them; a file is in the place of each loop device."""
    lines = []
    for number, content in enumerate(layers.values()):
        write(root, f"dev/loop{number}", "")
        (root / f"dev/loop{number}").write_bytes(content)
        lines.append(f"{digest(content)} {len(content)} /dev/loop{number}")
    write(root, "run/provisioner/layers", "\n".join(lines) + "\n")


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
    assert "not signed by the key of the running image" in refusal(root, forged.digest)


def test_a_store_that_has_no_such_image_is_named(root: Path, store: FakeImageStore) -> None:
    assert f"{store.url}/images/sha256-" in refusal(root, "sha256:" + "0b" * 32)


def test_a_record_that_is_damaged_counts_as_none(root: Path) -> None:
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    for content in ("", "[]", json.dumps({"imageDigest": "x"})):
        (folder / RECORD).write_text(content)
        assert read_record(str(root)) is None
