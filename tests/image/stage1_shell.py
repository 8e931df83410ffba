"""The real stage-1 in a chroot, with its own busybox and signify, up to verified layers; its network is left out."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.hostile_mirror import LEAST_RATE, Behaviour, Mirrors, honest
from tests.signed_image import SignedImage, line

BOUND_SECONDS = 120
_KEEP_LAYERS = """
mount_root() {
    mkdir /verified
    while read -r layer layer_digest layer_bytes path <&3; do
        cp "$layers_folder/${path##*/}" "/verified/$layer"
        echo "$layer" >>/verified/order
    done 3<"$layers"
}
hand_over() { :; }
"""


def served(image: SignedImage, source: str) -> dict[tuple[str, str], Behaviour]:
    """Honestly."""
    return {(source, path.rpartition("/")[2]): honest(content) for path, content in image.served().items()}


def honest_sources(image: SignedImage) -> dict[tuple[str, str], Behaviour]:
    """Until a test says otherwise."""
    return served(image, "cache") | served(image, "boot host")


class Stage1:
    """`tree`: the unpacked initramfs. `windows`: seconds instead of stage-1's own, for a source and a small file."""

    def __init__(self, tree: Path, *, windows: int) -> None:
        self._tree = tree
        self.printed = self.said = self.left_mounted = ""
        library = tree / "lib/stage1"
        (library / "network.sh").write_text("bring_up_network() { echo interface=lo >/run/stage1/network; }\n")
        with (library / "handover.sh").open("a") as handover:
            handover.write(_KEEP_LAYERS)
        fetch = (library / "fetch.sh").read_text()
        for name in ("window_seconds", "small_seconds"):
            fetch, count = re.subn(rf"^{name}=\d+$", f"{name}={windows}", fetch, flags=re.MULTILINE)
            assert count == 1, name
        (library / "fetch.sh").write_text(fetch)

    def boot(
        self,
        mirrors: Mirrors,
        image: SignedImage,
        *,
        attempts: int,
        least_rate: int = LEAST_RATE,
        boot_host_first: bool = False,
        staged: Mapping[str, bytes] | None = None,
    ) -> dict[str, bytes] | None:
        """The layers that it would mount after at most so many attempts, from the bottom; None if it never does.

        `staged`: files that the initramfs has below /staged."""
        cache, boot_host = f"{mirrors.url}/cache/images", f"{mirrors.url}/images"
        words = {
            "server": "r01-u01",
            "mac": "52:54:00:12:34:56",
            "url": mirrors.url,
            "join": "https://127.0.0.1:8443",
            "image": image.name,
            "images": boot_host if boot_host_first else cache,
            "leastrate": str(least_rate),
            **({"nextimages": cache} if boot_host_first else {}),
        }
        (self._tree / "cmdline").write_text(
            " ".join(f"provisioner.{name}={value}" for name, value in words.items()) + "\n"
        )
        self._stage(staged or {})
        script = (
            "mount -t proc proc /proc && mount -o bind /cmdline /proc/cmdline && mount -t tmpfs tmpfs /run && "
            "mkdir -p /run/stage1 && : >/dev/console || exit 9\n"
            f"for attempt in $(seq {attempts}); do /lib/stage1/attempt && exit 0; done; exit 1\n"
        )
        verified = self._tree / "verified"
        shutil.rmtree(verified, ignore_errors=True)
        if self._run(script) == 1:
            return None
        return {name: (verified / name).read_bytes() for name in (verified / "order").read_text().split()}

    def still_staged(self) -> list[str]:
        """What is left below /staged, and so in memory."""
        return [file.name for file in (self._tree / "staged").glob("*")]

    def read_manifest(self, manifest: bytes) -> str | None:
        """The layers that it finds in a manifest which was verified; None if it refuses it, with `said`."""
        (self._tree / "case").write_bytes(manifest)
        script = (
            "set -f; mkdir -p /run/stage1; for file in say arguments manifest layers; do . /lib/stage1/$file.sh; done\n"
            "image=sha256-x manifest=/case layers=/case.layers; read_manifest && echo $root_bytes >>$layers\n"
        )
        return (self._tree / "case.layers").read_text() if self._run(script) == 0 else None

    def mount(self, layers: Mapping[str, bytes], then: str) -> str:
        """What the mounting of these staged layers prints, and `then`, a script that is run if it succeeds.

        The mounts are real ones of the kernel that runs here; `left_mounted` is what there was of them at the end."""
        lines = [line(name, content) for name, content in layers.items()]
        (self._tree / "case").write_text(
            "".join(f"{text} x/{name}\n" for text, name in zip(lines, layers, strict=True))
        )
        self._stage(layers)
        (self._tree / "sysroot").mkdir(exist_ok=True)
        script = (
            "mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /run/stage1 || exit 9\n"
            "set -f; for file in say arguments manifest layers; do . /lib/stage1/$file.sh; done\n"
            f"image=sha256-x layers=/case layers_folder=/staged\nmount_root && {{ {then}; }}\n"
            "cat /proc/mounts >/left\nfree_up\n"
        )
        self._run(script, devices=True)
        self.left_mounted = (self._tree / "left").read_text()
        return self.printed

    def _stage(self, files: Mapping[str, bytes]) -> None:
        shutil.rmtree(self._tree / "staged", ignore_errors=True)
        for name, content in files.items():
            (self._tree / "staged").mkdir(exist_ok=True)
            (self._tree / "staged" / name).write_bytes(content)

    def _run(self, script: str, *, devices: bool = False) -> int:
        """Its exit status. `devices`: with those of this machine."""
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        chroot = 'exec chroot "$0" /bin/sh -c "$1"'
        if devices:
            chroot = f'modprobe -q -a loop squashfs overlay 2>/dev/null; mount --bind /dev "$0/dev" && {chroot}'
        done = subprocess.run(
            [*inside, "sh", "-c", chroot, self._tree, script],
            env={"PATH": "/bin:/usr/bin:/sbin:/usr/sbin"},
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
        self.printed, self.said = done.stdout, done.stdout + done.stderr
        assert done.returncode in (0, 1), self.said
        return done.returncode


def unpack_stage1(initramfs: Path, folder: Path) -> Path:
    """The initramfs as a tree, with files in the place of its devices."""
    folder.mkdir()
    unpacked = subprocess.run(["zstd", "-dcq", initramfs], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["cpio", "-i", "-m", "--quiet"], input=unpacked, cwd=folder, check=True)
    (folder / "dev/console").unlink()
    (folder / "dev/console").touch()
    (folder / "dev/null").touch()
    return folder
