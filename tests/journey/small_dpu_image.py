"""An image for arm64 with the real kernel and the real stage-1 of images/dpu, and a root of one program.

What the whole image takes minutes for, installing its packages under emulation, is left out: packages are unpacked.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from provisioner.image.assembly.stage1 import pack_stage1
from provisioner.image.base import Base, install_stage1_modules
from provisioner.image.finished import store
from provisioner.image.finished.manifest import Layer, Manifest
from provisioner.image.finished.sign import SecretKey
from provisioner.image.inputs import Fingerprint
from provisioner.image.mirror import choose_archives, read_sources
from provisioner.image.plan import KEYRINGS, Choices
from provisioner.image.recipe import Recipe
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.modules import KernelModules

# It says what stage-1 has left for it, and waits.
INIT = """#!/bin/sh
export PATH=/bin
echo "root: $(cat /etc/hostname) $(uname -m) $(uname -r)"
grep ' / ' /proc/mounts | sed 's/^/root: mounted /'
echo "root: end"
while :; do sleep 1000; done
"""
ARCHITECTURE = "arm64"


def unpack_command(recipe: Recipe, choices: Choices, target: Path) -> list[str]:
    """mmdebstrap, without a maintainer script: stage-1's packages, the C library, and the kernel."""
    distribution = choices.distribution
    packages = [*distribution.stage1_packages, "libc6", distribution.kernel[ARCHITECTURE]]
    return [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory", "--skip=check/qemu"),
        f"--architectures={distribution.architectures[ARCHITECTURE]}",
        f"--keyring={KEYRINGS}",
        '--aptopt=APT::Install-Recommends "false"',
        f"--include={','.join(packages)}",
        distribution.suite,
        str(target),
        *(f"deb {archive.uri} {archive.suite} {' '.join(archive.components)}" for archive in choices.archives),
    ]


def unpacked_base(recipe: Recipe, cache: Path) -> Base:
    """Kernel, modules and stage-1's packages, unpacked; half a minute the first time."""
    distribution = recipe.distribution("debian", ARCHITECTURE)
    choices = Choices(
        architecture=ARCHITECTURE, distribution=distribution, archives=choose_archives(distribution, read_sources())
    )
    fingerprint = Fingerprint("unpacked base")
    fingerprint.add("command", repr(unpack_command(recipe, choices, Path())).encode())
    fingerprint.add("modules", repr(recipe.stage1_modules).encode())
    folder = cache / f"dpu-{fingerprint.hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (
        (cache / f".{folder.name}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix=".dpu-", dir=cache) as name,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return Base(folder)
        work = Path(name) / "base"
        base = Base(work)
        work.mkdir()
        subprocess.run(unpack_command(recipe, choices, base.root), check=True)
        base.stage1_packages.symlink_to("root")
        (release,) = (base.root / "usr/lib/modules").iterdir()
        shutil.copyfile(base.root / f"boot/vmlinuz-{release.name}", base.kernel)
        (work / "versions.json").write_text(json.dumps({"kernel": release.name}))
        install_stage1_modules(base, KernelModules(release).choose(recipe.stage1_modules))
        shutil.rmtree(release)
        work.rename(folder)
    return Base(folder)


def build_small_image(recipe: Recipe, base: Base, key: SecretKey, foreign: ForeignPrograms, image_store: Path) -> Path:
    """Kernel, stage-1 and root with a signed manifest, in the store; returns its folder there."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        tree = work / "root"
        for folder in ("bin", "sbin", "etc", "proc", "sys", "dev", "run"):
            (tree / folder).mkdir(parents=True)
        shutil.copyfile(base.stage1_packages / "usr/bin/busybox", tree / "bin/busybox")
        (tree / "bin/busybox").chmod(0o755)
        for applet in ("sh", "cat", "grep", "sed", "uname", "sleep"):
            (tree / "bin" / applet).symlink_to("busybox")
        (tree / "sbin/init").write_text(INIT)
        (tree / "sbin/init").chmod(0o755)
        files = {"kernel": base.kernel, "stage1": work / "stage1.img", "layer.base": work / "base.squashfs"}
        files["stage1"].write_bytes(pack_stage1(recipe, base, key.public, foreign))
        squashfs = ["mksquashfs", tree, files["layer.base"], "-quiet", "-no-progress", "-comp", "zstd"]
        subprocess.run(squashfs, check=True)
        text = Manifest(
            recipe=recipe.name,
            distribution="debian-13",
            architecture=ARCHITECTURE,
            kernel=store.measure(files["kernel"]),
            stage1=store.measure(files["stage1"]),
            layers=(Layer("base", store.measure(files["layer.base"])),),
            kernel_arguments=recipe.kernel_arguments,
            versions=base.versions,
        ).encode()
        return store.put_image(image_store, text, key.sign(text), files)
