"""`python3 -I -m provisioner.node stage`: fetch and verify an image beside running jobs, and load its kernel.

A process of its own, at the lowest priorities, that the daemon ends when the image is not wanted any more. What it
holds lies in RAM, in a file system of its own below /run/provisioner/next; once the kernel is loaded only `staged.json`
is left of it there, and the kernel keeps the rest. It gives up when memory becomes short.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from provisioner.node.image import initrd
from provisioner.node.image.answer import Connect
from provisioner.node.image.authorities import JOIN_CA, Authorities
from provisioner.node.image.command_line import CommandLineError, boot_url, image_sources, least_rate, next_command_line
from provisioner.node.image.fetch import fetch_file, fetch_small
from provisioner.node.image.manifest import (
    MAX_BYTES,
    PUBLIC_KEY,
    ImageContents,
    ImageError,
    ImageFile,
    read_manifest,
    verify_signature,
)
from provisioner.node.image.running_layers import copy_layer, read_running_layers
from provisioner.node.machine.numa import memory_bytes
from provisioner.node.machine.running import lockdown, why_no_kexec
from provisioner.node.tpm.hand_over import hand_over_digest

# Where the files of one image come from: layers that run already from this machine, all else from image sources.


class Sources:
    """`least_rate`: how fast each source must give, in bytes/s. `running`: as `read_running_layers`. `connect`: as of
    Answer."""

    def __init__(
        self,
        urls: Sequence[str],
        least_rate: int,
        running: Mapping[tuple[str, int], str],
        connect: Connect | None = None,
    ) -> None:
        self._urls, self._least_rate, self._running, self._connect = urls, least_rate, running, connect
        self._faults: list[str] = []
        self._fetched_bytes = 0
        self._layers = 0
        self._layers_here = 0

    def fetch_small(self, path: str, limit_bytes: int, check: Callable[[bytes], object]) -> bytes:
        return fetch_small(self._urls, path, limit_bytes, check, connect=self._connect)

    def fetch_file(self, file: ImageFile, target: BinaryIO, check: Callable[[], None]) -> None:
        faults, given_bytes = fetch_file(
            self._urls, file, target, least_rate=self._least_rate, check=check, connect=self._connect
        )
        self._faults += faults
        self._fetched_bytes += given_bytes

    def obtain_layer(self, layer: ImageFile, target: BinaryIO, check: Callable[[], None]) -> None:
        """Append the layer to `target`: copied, else fetched."""
        self._layers += 1
        device = self._running.get((layer.sha256, layer.size_bytes))
        if device is not None:
            fault = copy_layer(device, layer, target, check)
            if not fault:
                self._layers_here += 1
                return
            self._faults.append(fault)
        self.fetch_file(layer, target, check)

    def describe(self) -> str:
        """What came from where, and what was wrong with the last source that was left for another one, if any was."""
        came = f"{self._layers_here} of {self._layers} layers were here, {self._fetched_bytes / 1e6:.0f} MB fetched"
        return "; ".join((came, *self._faults[-1:]))


FOLDER = "/run/provisioner/next"
RECORD = "staged.json"
COPIES = 3
"""How often the image is in memory while it is loaded: the file, kexec's copy of it, and the kernel's."""
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IDLE_CLASS = 3 << 13


def reserve_bytes(root: str) -> int:
    """What must stay available to whatever else runs here: 3 % of the memory, 64 MiB to 2 GiB."""
    return min(max(memory_bytes(f"{root}/proc/meminfo", "MemTotal") * 3 // 100, 64 << 20), 2 << 30)


def check_memory(root: str, needed_bytes: int) -> None:
    """Raises: ImageError if the reserve would be touched by taking `needed_bytes`."""
    available, reserve = memory_bytes(f"{root}/proc/meminfo", "MemAvailable"), reserve_bytes(root)
    if available < needed_bytes + reserve:
        raise ImageError(
            f"memory: {available >> 20} MiB available, and {(needed_bytes + reserve) >> 20} MiB needed "
            f"({needed_bytes >> 20} MiB for the image, {reserve >> 20} MiB in reserve); boot by the firmware instead"
        )


def lower_priority() -> None:
    """Run only when nothing else wants the processor or the disks."""
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        ctypes.CDLL(None, use_errno=True).syscall(_IOPRIO_SET[os.uname().machine], 1, 0, _IDLE_CLASS)
    except (OSError, KeyError, AttributeError):
        return  # nice alone, then


def stage(root: str, image_digest: str, arguments: Sequence[str], load: Callable[..., None]) -> str:
    """Fetch, verify and load; returns what was done, in words. `load`: as kexec.load. Raises: ImageError."""
    if not root and (reason := why_no_kexec(root)):
        raise ImageError(reason)
    running = Path(f"{root}/proc/cmdline").read_text()
    try:
        command_line = next_command_line(running, image_digest, arguments)
    except CommandLineError as error:
        raise ImageError(str(error)) from error
    image = image_digest.replace(":", "-")
    urls = tuple(image_sources(running))
    connect = _believed(root, running).connect if any(url.startswith("https://") for url in urls) else None
    sources = Sources(urls, least_rate(running), read_running_layers(root), connect)
    machine = os.uname().machine
    manifest = sources.fetch_small(
        f"{image}/manifest", MAX_BYTES, lambda content: read_manifest(content, image_digest, machine)
    )
    contents = read_manifest(manifest, image_digest, machine)
    size = contents.size_bytes
    folder = open_folder(root, image_digest, size)
    (folder / "manifest").write_bytes(manifest)

    def verify(content: bytes) -> None:
        (folder / "manifest.sig").write_bytes(content)
        verify_signature(str(folder), root + PUBLIC_KEY)

    signature = sources.fetch_small(f"{image}/manifest.sig", 4096, verify)

    def check() -> None:
        check_memory(root, (COPIES - 1) * size)

    check_memory(root, COPIES * size - _held_bytes(folder))
    with (folder / "vmlinuz").open("w+b") as target:
        sources.fetch_file(contents.kernel, target, check)
    key = os.urandom(32).hex()
    fetch_initrd(folder, sources, contents, (manifest, signature), key, check)
    check()
    load(str(folder / "vmlinuz"), str(folder / "initrd"), command_line, lockdown(root))
    for name in ("vmlinuz", "initrd"):
        (folder / name).unlink()
    record = {
        "imageDigest": image_digest,
        "arguments": list(arguments),
        "requestKeySHA256": hash_key(key),
        "handOverSHA256": hand_over_digest(
            kernel_sha256="sha256:" + contents.kernel.sha256,
            stage1_sha256="sha256:" + contents.stage1.sha256,
            image_digest=image_digest,
            request_key_sha256=hash_key(key),
            command_line=command_line,
        ),
    }
    (folder / RECORD).write_text(json.dumps(record))
    return f"{image} is verified and loaded ({size / 1e6:.0f} MB): {sources.describe()}"


def _believed(root: str, running: str) -> Authorities:
    try:
        return Authorities(root, boot_url(running))
    except OSError as error:
        raise ImageError(f"{root}{JOIN_CA} has no certificates ({error}); build the running image again") from error


def hash_key(request_key: str) -> str:
    """What may be known of a request key."""
    return "sha256:" + hashlib.sha256(request_key.encode()).hexdigest()


def load_nothing(*_: str) -> None:
    """In place of kexec.load where the root is a made-up one: the machine around it is somebody's."""


def open_folder(root: str, image_digest: str, size_bytes: int) -> Path:
    """The folder, empty or with what an earlier try at the same image has fetched."""
    folder = Path(root + FOLDER)
    mark = folder / "image"
    if mark.exists() and mark.read_text() == image_digest:
        return folder
    close_folder(root)
    folder.mkdir(mode=0o700, parents=True)
    if not root:
        options = f"nosuid,nodev,noexec,mode=0700,size={size_bytes + (1 << 20)}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, timeout=60)
    mark.write_text(image_digest)
    return folder


def close_folder(root: str) -> None:
    """Give the memory back."""
    folder = Path(root + FOLDER)
    if not root and folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=False, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


def read_record(root: str) -> dict[str, Any] | None:
    """What an earlier run of the daemon staged in this boot, if it is still loaded."""
    try:
        record = json.loads(Path(f"{root}{FOLDER}/{RECORD}").read_text())
        return {
            "imageDigest": str(record["imageDigest"]),
            "arguments": tuple(record["arguments"]),
            "requestKeySHA256": str(record["requestKeySHA256"]),
            "handOverSHA256": str(record["handOverSHA256"]),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def fetch_initrd(
    folder: Path,
    sources: Sources,
    contents: ImageContents,
    signed: tuple[bytes, bytes],
    request_key: str,
    check: Callable[[], None],
) -> None:
    """folder/initrd: stage-1 and the layers, all verified, and the key. Goes on with what an earlier try has left."""
    path = folder / "initrd"
    with path.open("r+b" if path.exists() else "w+b") as target:
        sources.fetch_file(contents.stage1, target, check)
        target.write(initrd.before_layers(contents.stage1.size_bytes, *signed))
        for layer in contents.layers:
            target.write(initrd.before_layer(layer.file_name, layer.size_bytes))
            sources.obtain_layer(layer, target, check)
            target.write(initrd.after_layer(layer.size_bytes))
        target.write(initrd.after_layers(request_key))
        target.truncate()


def _held_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
