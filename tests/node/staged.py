"""An image to stage, a machine that stages it, and what came of that."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from provisioner.image.finished.sign import SecretKey
from provisioner.node.image.initrd import after_layer, after_layers, before_layer, before_layers
from provisioner.node.image.manifest import ImageError
from provisioner.node.image.stage import FOLDER, read_record, stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import write
from tests.signed_image import SignedImage, digest, layered_image, one_root_image

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


def starts(store: FakeImageStore, layer: str) -> list[str]:
    """Of the requests for a layer, in order."""
    return [asked for path, asked in store.asked if path.endswith(IMAGE.path(layer))]


def leave(root: Path, initrd: bytes, image_digest: str = IMAGE.digest) -> None:
    """What an earlier process has left."""
    folder = Path(f"{root}{FOLDER}")
    folder.mkdir()
    (folder / "image").write_text(image_digest)
    (folder / "initrd").write_bytes(initrd)


def let_run(root: Path, layers: dict[str, bytes]) -> None:
    """As stage-1 leaves them; a file is in the place of each loop device."""
    lines = []
    for number, content in enumerate(layers.values()):
        write(root, f"dev/loop{number}", "")
        (root / f"dev/loop{number}").write_bytes(content)
        lines.append(f"{digest(content)} {len(content)} /dev/loop{number}")
    write(root, "run/provisioner/layers", "\n".join(lines) + "\n")


def refusal(root: Path, digest: str) -> str:
    """Why nothing was loaded."""
    kexec = FakeKexec()
    with pytest.raises(ImageError) as caught:
        stage(str(root), digest, [], kexec.load)
    assert kexec.kernel == b"", "nothing was loaded"
    assert read_record(str(root)) is None
    return str(caught.value)
